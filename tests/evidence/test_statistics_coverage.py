"""Simulated coverage: how often each interval holds a truth that is known.

The normal tests run 200 simulations and forgive four standard errors; the slow ones 1,000 and
three.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from armillary.evidence.shapes import Case, Stat, Unit
from armillary.evidence.statistics import estimate
from armillary.evidence.table import Table

Draw = Callable[[np.random.Generator], Table]

LEVEL = Stat("m")
GEOMEAN = Stat("m", over=("peer",), form="ratio", pool="geomean")
MEANS = Stat("m", over=("peer",), form="ratio", pool="ratio_of_means")
GAIN = Stat("m", over=("peer",), form="difference")
SLOPE = Stat("m", form="slope", along="n")
SIZES = np.array([8.0, 16.0, 32.0, 64.0])


def table(unit: Unit, sizes, **values: NDArray) -> Table:
    """From ``who=(cases, seeds)`` arrays."""
    cases = tuple(Case(f"c{i}", {"n": float(n)}) for i, n in enumerate(sizes))
    case, seed = np.indices(next(iter(values.values())).shape).reshape(2, -1)
    columns = {who: {"m": v.astype(float).ravel()} for who, v in values.items()}
    return Table(case, seed, case if unit == "case" else seed, cases, columns)


def normal(units: int) -> Draw:
    return lambda rng: table("seed", [1], ours=rng.normal(2, 1, (1, units)))


def ratios(units: int) -> Draw:
    """Geometric ratio 0.8: both share a seed's difficulty, each cell has its own noise."""

    def draw(rng: np.random.Generator) -> Table:
        shared = np.exp(rng.normal(0, 1, (1, units)))
        ours, peer = (shared * np.exp(rng.normal(0, 0.3, (3, units))) for _ in range(2))
        return table("seed", [1, 1, 1], ours=0.8 * ours, peer=peer)

    return draw


def means(units: int) -> Draw:
    """Ratio of means 0.8, a third of the cells zero for both."""

    def draw(rng: np.random.Generator) -> Table:
        shared = rng.gamma(4, 0.25, (3, units)) * (rng.random((3, units)) > 1 / 3)
        ours, peer = (shared * rng.gamma(8, 1 / 8, (3, units)) for _ in range(2))
        return table("seed", [1, 1, 1], ours=0.8 * ours, peer=peer)

    return draw


def shares(units: int, cells: int = 1) -> Draw:
    """A share of 2/3; with several cells a unit, units differ in it."""

    def draw(rng: np.random.Generator) -> Table:
        share = rng.beta(4, 2, (1, units))
        return table("seed", [1] * cells, ours=rng.random((cells, units)) < share)

    return draw


def pairs(units: int, cells: int = 1) -> Draw:
    """Shares of 0.8 and 0.64, of units that differ in them."""

    def draw(rng: np.random.Generator) -> Table:
        share = rng.beta(8, 2, (1, units))
        ours, peer = rng.random((2, cells, units)) < np.array([1, 0.8])[:, None, None] * share
        return table("seed", [1] * cells, ours=ours, peer=peer)

    return draw


def inside(units: int) -> Draw:
    """Exponent 1.2 in units of unlike size."""

    def draw(rng: np.random.Generator) -> Table:
        noise = rng.normal(0, 1, (1, units)) + rng.normal(0, 0.2, (len(SIZES), units))
        return table("seed", SIZES, ours=SIZES[:, None] ** 1.2 * np.exp(noise))

    return draw


def across(units: int) -> Draw:
    """Exponent 1.2 over cases of unlike size."""

    def draw(rng: np.random.Generator) -> Table:
        sizes = 2 ** np.linspace(3, 10, units)
        noise = np.exp(rng.normal(0, 0.2, (units, 2)))
        return table("case", sizes, ours=sizes[:, None] ** 1.2 * noise)

    return draw


def skewed(units: int) -> Draw:
    return lambda rng: table("seed", [1], ours=rng.exponential(1, (1, units)))


MEDIAN = Stat("m", pool="median")

PROMISED = 0.95

#: name: (what is drawn, statistic, truth, whether the metric is 0/1)
SITUATIONS: dict[str, tuple[Draw, Stat, float, bool]] = {
    "t, 3 units": (normal(3), LEVEL, 2.0, False),
    "t, 10 units": (normal(10), LEVEL, 2.0, False),
    "BCa, 20 units": (normal(20), LEVEL, 2.0, False),
    "BCa, 60 units": (normal(60), LEVEL, 2.0, False),
    "geometric ratio, t": (ratios(6), GEOMEAN, 0.8, False),
    "geometric ratio, BCa": (ratios(30), GEOMEAN, 0.8, False),
    "ratio of means, Fieller": (means(10), MEANS, 0.8, False),
    "ratio of means, BCa": (means(40), MEANS, 0.8, False),
    "Wilson": (shares(30), LEVEL, 2 / 3, True),
    "Wilson, 10 cells a unit": (shares(8, 10), LEVEL, 2 / 3, True),
    "McNemar": (pairs(40), GAIN, 0.16, True),
    "McNemar, 10 cells a unit": (pairs(8, 10), GAIN, 0.16, True),
    "slope inside units, t": (inside(5), SLOPE, 1.2, False),
    "slope inside units, BCa": (inside(30), SLOPE, 1.2, False),
    "slope across cases, t": (across(8), SLOPE, 1.2, False),
    "slope across cases, BCa": (across(40), SLOPE, 1.2, False),
    "median, order statistics": (skewed(15), MEDIAN, math.log(2), False),
}


def errors(draw: Draw, stat: Stat, truth: float, counts: bool, runs: int) -> NDArray:
    """(2,) shares of intervals that lie wholly over and wholly under the truth."""
    rng = np.random.default_rng(20260706)
    missed = np.zeros(2)
    for _ in range(runs):
        found = estimate(draw(rng), stat, counts=counts)
        assert found.low is not None
        assert found.high is not None
        missed += (found.low > truth, found.high < truth)
    return missed / runs


def check(name: str, runs: int, forgiven: float) -> NDArray:
    missed = errors(*SITUATIONS[name], runs)
    covered = 1 - missed.sum()
    error = forgiven * math.sqrt(PROMISED * (1 - PROMISED) / runs)
    assert covered >= PROMISED - error, f"{name} covers {covered:.3f}"
    return missed


@pytest.mark.parametrize("name", SITUATIONS)
def test_intervals_hold_the_truth_as_often_as_they_say(name: str):
    check(name, runs=200, forgiven=4)


@pytest.mark.slow
@pytest.mark.parametrize("name", SITUATIONS)
def test_intervals_hold_the_truth_in_a_thousand_runs(name: str):
    assert check(name, runs=1000, forgiven=3).max() <= 0.05
