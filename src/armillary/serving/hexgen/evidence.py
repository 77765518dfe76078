"""The experiments of hexgen. This one fails: there is no method yet."""

from __future__ import annotations

import numpy as np

from armillary.evidence.shapes import (
    Case,
    Cell,
    Claim,
    Condition,
    Contender,
    Experiment,
    Metric,
    Stat,
)
from armillary.serving.hexgen.estimator import Hexgen

CASES = (Case("heavy tails", x={"n": 200}), Case("normal", x={"n": 200}))


def setup(cell: Cell) -> np.ndarray:
    """Samples whose true location is 0."""
    rng = np.random.default_rng(cell.seed)
    n = int(cell.case.x["n"])
    return rng.standard_t(2, n) if cell.case.name == "heavy tails" else rng.normal(size=n)


def ours(x: np.ndarray, cell: Cell) -> dict[str, float]:
    return {"error": abs(Hexgen().fit(x).location_)}


def mean(x: np.ndarray, cell: Cell) -> dict[str, float]:
    return {"error": abs(float(np.mean(x)))}


EXPERIMENTS = (
    Experiment(
        id="location",
        title="Error of the location",
        cases={"smoke": CASES[:1], "quick": CASES, "full": CASES},
        setup=setup,
        contenders=(Contender("ours", ours), Contender("mean", mean)),
        metrics=(Metric("error"),),
        claims=(
            Claim(
                id="lower-error",
                statement="The error is at most 0.9 of the mean's.",
                paper="What the paper reports.",
                conditions=(
                    Condition(
                        Stat("error", over=("mean",), form="ratio", pool="ratio_of_means"),
                        at_most=0.9,
                    ),
                ),
            ),
        ),
        seeds={"smoke": 1, "quick": 5, "full": 20},
    ),
)
