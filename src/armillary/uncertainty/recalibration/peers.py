"""Rivals of the method, each at its best public configuration, all answering in one form.

Every rival is a function ``(P, y, P_new) -> Predictive``: it learns on calibration pairs and
recalibrates new predictions. Those called *rewritten* are ours, after their papers; the others call
the rival's own package. What a package returns as curves or quantiles is read at 199 mid-levels.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from armillary.errors import require
from armillary.uncertainty.recalibration.diagnostics import pit
from armillary.uncertainty.recalibration.distributions import (
    Floats,
    GaussianMixture,
    Interval,
    Predictive,
    Quantiles,
    WeightedSamples,
    normal,
)
from armillary.uncertainty.recalibration.embedding import Backend, squared_distances
from armillary.uncertainty.recalibration.energy import embed, place_knots

Peer = Callable[[Predictive, Floats, Predictive, int], Predictive]

LEVELS = (np.arange(199) + 0.5) / 199
_EXTRA = "uncertainty-peers"


def _package(module: str) -> Any:
    return require(module, what="evidence of recalibration", extra=_EXTRA)


@contextlib.contextmanager
def _silenced() -> Iterator[None]:
    """Progress bars and log lines of a package, kept off the terminal."""
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        yield


def _moments(p: Predictive) -> tuple[Floats, Floats]:
    """Means, and standard deviations away from zero (a tree ensemble may agree exactly)."""
    std = p.std()
    return p.mean(), np.maximum(std, 1e-3 * np.median(std))


def base(p: Predictive, y: Floats, new: Predictive, seed: int) -> Predictive:
    """The base model itself."""
    return new


def pit_map(p: Predictive, y: Floats, new: Predictive, seed: int) -> Predictive:
    """Kuleshov et al. 2018, rewritten: the CDF G of calibration PITs is composed with each CDF.

    The new quantile at level tau is the old one at G^-1(tau); no Gaussian is assumed.
    """
    inverse = np.quantile(pit(p, y, seed), LEVELS)
    inverse = np.clip(inverse, 1e-4, 1 - 1e-4)
    return Quantiles(LEVELS, np.sort(new.quantile(inverse), axis=1))


def crude(p: Predictive, y: Floats, new: Predictive, seed: int) -> Predictive:
    """CRUDE (Zelikman et al. 2020), rewritten: pooled z-scores of residuals on every row."""
    mean, std = _moments(p)
    new_mean, new_std = _moments(new)
    scores = np.sort((y - mean) / std)
    return WeightedSamples(new_mean[:, None] + new_std[:, None] * scores)


def nearest_distributions(p: Predictive, y: Floats, new: Predictive, seed: int) -> Predictive:
    """The outcomes of the nearest calibration predictions in energy distance, weighed equally.

    Rewritten; the number of neighbours is the best of a grid by leave-one-out CRPS.
    """
    knots = place_knots(p, 513)
    at, at_new, backend = embed(p, knots), embed(new, knots), Backend()
    within = squared_distances(at, at, backend)
    np.fill_diagonal(within, np.inf)
    order = np.argsort(within, axis=1)

    def score(k: int) -> float:
        return float(WeightedSamples(y[order[:, :k]]).crps(y).mean())

    grid = [k for k in (10, 20, 40, 80, 160, 320) if k < len(y)]
    best = min(grid, key=score)
    nearest = np.argsort(squared_distances(at_new, at, backend), axis=1)[:, :best]
    return WeightedSamples(y[nearest])


def toolbox_isotonic(p: Predictive, y: Floats, new: Predictive, seed: int) -> Predictive:
    """uncertainty-toolbox: isotonic recalibration of quantile levels (Gaussian input)."""
    recalibration = _package("uncertainty_toolbox.recalibration")
    calibration = _package("uncertainty_toolbox.metrics_calibration")
    mean, std = _moments(p)
    expected, observed = calibration.get_proportion_lists_vectorized(
        mean, std, y, prop_type="quantile"
    )
    model = recalibration.iso_recal(expected, observed)
    levels = np.clip(model.predict(LEVELS), 1e-4, 1 - 1e-4)
    return Quantiles(LEVELS, np.sort(normal(*_moments(new)).quantile(levels), axis=1))


def toolbox_scaling(p: Predictive, y: Floats, new: Predictive, seed: int) -> Predictive:
    """uncertainty-toolbox: one factor on all standard deviations, of least miscalibration area."""
    recalibration = _package("uncertainty_toolbox.recalibration")
    mean, std = _moments(p)
    with _silenced():
        ratio = recalibration.optimize_recalibration_ratio(mean, std, y, criterion="miscal")
    new_mean, new_std = _moments(new)
    return normal(new_mean, ratio * new_std)


def variance_scaling(p: Predictive, y: Floats, new: Predictive, seed: int) -> Predictive:
    """netcal VarianceScaling: one factor on all standard deviations, of greatest likelihood."""
    model = _package("netcal.regression").VarianceScaling()
    model.fit(_moments(p), y)
    mean, _ = _moments(new)
    return normal(mean, model.transform(_moments(new)).ravel())


def netcal_isotonic(p: Predictive, y: Floats, new: Predictive, seed: int) -> Predictive:
    """netcal IsotonicRegression: a step map on Gaussian CDFs."""
    model = _package("netcal.regression").IsotonicRegression()
    model.fit(_moments(p), y)
    mean, std = _moments(new)
    return _from_curves(*model.transform((mean, std), t=_grid(mean, std))[::2])


def gaussian_process(kind: str) -> Peer:
    """netcal GPBeta, GPNormal or GPCauchy at their own defaults, on standardised outcomes.

    They take means and standard deviations as a pair of numpy arrays; plain lists fail in them.
    """

    def run(p: Predictive, y: Floats, new: Predictive, seed: int) -> Predictive:
        regression, torch = _package("netcal.regression"), _package("torch")
        pyro = _package("pyro")
        pyro.set_rng_seed(seed)
        centre, unit = y.mean(), y.std()

        def standard(q: Predictive) -> tuple[Floats, Floats]:
            mean, std = _moments(q)
            return (mean - centre) / unit, std / unit

        with _silenced(), torch.enable_grad():
            model = getattr(regression, kind)(n_inducing_points=12, n_random_samples=128)
            model.fit(standard(p), (y - centre) / unit)
            mean, std = standard(new)
            if kind == "GPNormal":
                found: Predictive = normal(mean, model.transform((mean, std)).ravel())
                assert isinstance(found, GaussianMixture)
                return normal(centre + unit * found.mean(), unit * found.std())
            points, _, cdf = model.transform((mean, std), t=_grid(mean, std))
        return _from_curves(centre + unit * points, cdf)

    return run


def _grid(mean: Floats, std: Floats) -> Floats:
    """(401, n) points over 12 standard deviations either side of each mean, dense in the middle."""
    steps = np.sinh(np.linspace(-3, 3, 401)) / np.sinh(3) * 12
    return mean + steps[:, None] * std


def _from_curves(points: Floats, cdf: Floats) -> Quantiles:
    """Quantiles at the mid-levels from CDF curves (T, n, 1) on their points."""
    points, cdf = points[:, :, 0], np.maximum.accumulate(cdf[:, :, 0], axis=0)
    columns = [np.interp(LEVELS, cdf[:, i], points[:, i]) for i in range(points.shape[1])]
    return Quantiles(LEVELS, np.sort(np.stack(columns), axis=1))


def mondrian(bins: int | None, *, scaled: bool = True) -> Peer:
    """crepes: conformal predictive systems in bins of equal size by predicted difficulty.

    Args:
        bins: number of Mondrian categories; None: one system for all rows.
        scaled: whether residuals are divided by the predicted standard deviation, as its
            documentation does for normalised systems.
    """

    def run(p: Predictive, y: Floats, new: Predictive, seed: int) -> Predictive:
        crepes, extras = _package("crepes"), _package("crepes.extras")
        mean, std = _moments(p)
        new_mean, new_std = _moments(new)
        if bins is None:
            categories = new_categories = None
        else:
            categories, thresholds = extras.binning(std, bins=bins, seed=seed)
            new_categories = extras.binning(new_std, bins=thresholds)
        system = crepes.ConformalPredictiveSystem()
        system.fit(y - mean, sigmas=std if scaled else None, bins=categories, seed=seed)
        rows = system.predict_cpds(
            new_mean, sigmas=new_std if scaled else None, bins=new_categories
        )
        return _ragged(rows)

    return run


def quantile_conformal(
    p: Predictive, y: Floats, new: Predictive, seed: int, coverage: float = 0.9
) -> Interval:
    """MAPIE: conformalised quantile regression on the base model's own quantiles.

    MAPIE wraps three fitted models of one quantile each; here these look their rows up.
    """
    regression = _package("mapie.regression")
    sklearn = _package("sklearn.base")
    quantiles = np.concatenate(
        [q.quantile([(1 - coverage) / 2, (1 + coverage) / 2, 0.5]) for q in (p, new)]
    )

    class Column(sklearn.RegressorMixin, sklearn.BaseEstimator):
        def __init__(self, column: int = 0) -> None:
            self.column = column

        def fit(self, X: Any, y: Any) -> Column:
            self.fitted_ = True
            return self

        def predict(self, X: Any) -> Floats:
            return quantiles[np.asarray(X).ravel().astype(int), self.column]

    rows = np.arange(len(quantiles))[:, None]
    models = [Column(j).fit(rows, rows) for j in range(3)]
    with _silenced():
        model = regression.ConformalizedQuantileRegressor(
            estimator=models, confidence_level=coverage, prefit=True
        )
        model.conformalize(rows[: len(y)], y)
        _, ends = model.predict_interval(rows[len(y) :], symmetric_correction=True)
    lower, upper = ends[:, 0, 0], ends[:, 1, 0]
    return Interval(np.minimum(lower, upper), np.maximum(lower, upper))


def _ragged(rows: Any) -> Predictive:
    """Rows of atoms of different number as one weighted sample: short rows end in zero weights."""
    longest = max(len(row) for row in rows)
    values, weights = np.empty((len(rows), longest)), np.zeros((len(rows), longest))
    for i, row in enumerate(rows):
        row = np.asarray(row, dtype=float)
        values[i], weights[i, : len(row)] = row.max(), 1 / len(row)
        values[i, : len(row)] = row
    return WeightedSamples(values, weights)


PEERS: dict[str, Peer] = {
    "base": base,
    "pit": pit_map,
    "crude": crude,
    "knn": nearest_distributions,
    "toolbox-isotonic": toolbox_isotonic,
    "toolbox-scaling": toolbox_scaling,
    "variance-scaling": variance_scaling,
    "netcal-isotonic": netcal_isotonic,
    "mondrian-5": mondrian(5),
    "mondrian-10": mondrian(10),
    "mondrian-20": mondrian(20),
    "mondrian-10-plain": mondrian(10, scaled=False),
    "split-conformal": mondrian(None, scaled=False),
    "gp-beta": gaussian_process("GPBeta"),
    "gp-normal": gaussian_process("GPNormal"),
    "gp-cauchy": gaussian_process("GPCauchy"),
}
