"""Intervals against published figures, other libraries and slow twins."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from armillary.evidence import intervals
from armillary.evidence.intervals import Interval


def bounds(found: Interval) -> tuple[float, float]:
    assert found.low is not None
    assert found.high is not None
    return found.low, found.high


@pytest.mark.parametrize(
    ("hits", "trials", "low", "high"),
    # Newcombe, "Two-sided confidence intervals for the single proportion" (1998), table I,
    # method 3.
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611)],
)
def test_wilson_gives_the_published_figures(hits: int, trials: int, low: float, high: float):
    found = intervals.wilson(hits / trials, trials, 0.95)
    assert bounds(found) == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize("trials", [5, 20, 60])
def test_wilson_errs_at_most_one_in_twenty_on_either_side(trials: int):
    """By enumeration: for every share, the exact chance that a bound lies on the wrong side."""
    hits = np.arange(trials + 1)
    found = np.array([bounds(intervals.wilson(h / trials, trials, 0.95)) for h in hits])
    for share in np.linspace(0.001, 0.999, 333):
        chance = stats.binom.pmf(hits, trials, share)
        assert chance[found[:, 0] > share].sum() <= 0.05
        assert chance[found[:, 1] < share].sum() <= 0.05


def tango_twin(gained: int, lost: int, trials: int) -> tuple[float, float]:
    """The score interval by numerical maximisation of the trinomial likelihood."""

    def score(delta: float) -> float:
        def loss(p: float) -> float:
            pairs = [(gained, p + delta), (lost, p), (trials - gained - lost, 1 - 2 * p - delta)]
            return -sum(k * math.log(max(q, 1e-300)) for k, q in pairs if k)

        ends = (max(0.0, -delta), (1 - delta) / 2)
        p = optimize.minimize_scalar(
            loss, bounds=ends, method="bounded", options={"xatol": 1e-12}
        ).x
        return (gained - lost - trials * delta) / math.sqrt(trials * (2 * p + delta - delta**2))

    z, value = stats.norm.ppf(0.975), (gained - lost) / trials
    edge = 1 - 1e-9
    low = optimize.brentq(lambda d: score(d) - z, -edge, value)
    high = optimize.brentq(lambda d: score(d) + z, value, edge)
    return float(low), float(high)


@pytest.mark.parametrize(
    ("gained", "lost", "trials"), [(9, 3, 40), (1, 6, 30), (4, 4, 25), (12, 1, 50), (2, 2, 100)]
)
def test_paired_counts_match_numerical_maximum_likelihood(gained: int, lost: int, trials: int):
    found = intervals.paired_counts(gained / trials, lost / trials, trials, 0.95)
    assert bounds(found) == pytest.approx(tango_twin(gained, lost, trials), abs=1e-4)


@settings(deadline=None, max_examples=80)
@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30))
def test_paired_counts_exclude_zero_exactly_where_mcnemar_rejects(b: int, c: int, same: int):
    trials = b + c + same
    if trials == 0 or b == 0 or c == 0:
        return
    low, high = bounds(intervals.paired_counts(b / trials, c / trials, trials, 0.95))
    chi2 = (b - c) ** 2 / (b + c)
    if abs(chi2 - 3.8414588) > 1e-6:
        assert (low > 0 or high < 0) == (chi2 > 3.8414588)
    other = bounds(intervals.paired_counts(c / trials, b / trials, trials, 0.95))
    assert other == pytest.approx((-high, -low), abs=1e-8)


@pytest.mark.parametrize("trials", [10, 20])
def test_paired_counts_err_at_most_one_in_twenty_on_either_side(trials: int):
    """By enumeration of all outcomes, over truths where one trial in twenty ends alike at least.

    (Where fewer do, and there are ten trials, it errs in 5.5 %.)
    """
    outcomes = np.array([(b, c) for b in range(trials + 1) for c in range(trials + 1 - b)])
    found = np.array(
        [bounds(intervals.paired_counts(b / trials, c / trials, trials, 0.95)) for b, c in outcomes]
    )
    same = trials - outcomes.sum(axis=1, keepdims=True)
    for gain in (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9):
        for loss in (0.0, 0.01, 0.05, 0.2):
            if gain + loss > 0.95:
                continue
            shares = [gain, loss, 1 - gain - loss]
            chance = stats.multinomial.pmf(np.hstack([outcomes, same]), trials, shares)
            chance = np.nan_to_num(chance)
            truth = gain - loss
            assert chance[found[:, 0] > truth + 1e-9].sum() <= 0.05
            assert chance[found[:, 1] < truth - 1e-9].sum() <= 0.05


def test_fieller_bounds_are_where_a_t_test_just_rejects():
    rng = np.random.default_rng(0)
    below = rng.normal(5, 1, 12)
    above = 0.7 * below + rng.normal(0, 0.5, 12)
    for bound in bounds(intervals.fieller(above, below, 0.95)):
        assert stats.ttest_1samp(above - bound * below, 0).pvalue == pytest.approx(0.05)


def test_fieller_with_a_constant_denominator_is_students_interval():
    above = np.array([1.0, 2.0, 4.0, 5.0])
    scaled = bounds(intervals.student(above / 4, 0.95))
    assert bounds(intervals.fieller(above, np.full(4, 4.0), 0.95)) == pytest.approx(scaled)


def test_fieller_has_no_bounds_where_the_denominator_may_be_zero():
    found = intervals.fieller(np.ones(4), np.array([-1.0, 1.0, 2.0, -1.5]), 0.95)
    assert found == intervals.NO_INTERVAL


@pytest.mark.parametrize("units", [20, 60])
def test_bootstrap_agrees_with_scipys_bca_at_the_expanded_level(units: int):
    values = np.random.default_rng(5).exponential(1, units)
    wide = stats.t.ppf(0.975, units - 1) * math.sqrt(units / (units - 1))
    level = 2 * stats.norm.cdf(wide) - 1
    twin = stats.bootstrap(
        (values,), np.mean, confidence_level=level, n_resamples=20_000, method="BCa", rng=1
    ).confidence_interval
    found = intervals.bootstrap(values[:, None], lambda m: m[..., 0], 0.95)
    width = twin.high - twin.low
    assert bounds(found) == pytest.approx((twin.low, twin.high), abs=0.04 * width)


def test_bootstrap_tends_to_students_interval():
    values = np.random.default_rng(6).normal(3, 1, 1500)
    found = intervals.bootstrap(values[:, None], lambda m: m[..., 0], 0.95)
    exact = intervals.student(values, 0.95)
    width = bounds(exact)[1] - bounds(exact)[0]
    assert bounds(found) == pytest.approx(bounds(exact), abs=0.06 * width)


def test_bootstrap_without_a_value_on_resamples_gives_no_interval():
    values = np.zeros((25, 1))
    values[0] = 1
    found = intervals.bootstrap(values, lambda m: np.where(m[..., 0] > 0, 1, np.nan), 0.95)
    assert found == intervals.NO_INTERVAL


@pytest.mark.parametrize(
    ("units", "rank"),
    # Ranks of the 95 % interval of a median: tabulated by binomial(n, 1/2).
    [(6, 1), (8, 1), (9, 2), (12, 3), (15, 4), (20, 6), (25, 8), (40, 14)],
)
def test_order_statistics_have_the_tabulated_ranks(units: int, rank: int):
    values = np.arange(1.0, units + 1)
    assert bounds(intervals.order_statistics(values, 0.95)) == (rank, units + 1 - rank)


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 80), st.floats(0.5, 0.99))
def test_order_statistics_are_the_tightest_pair_that_covers(units: int, confidence: float):
    def covers(k: int) -> float:
        return 1 - 2 * stats.binom.cdf(k - 1, units, 0.5)

    found = intervals.order_statistics(np.arange(1.0, units + 1), confidence)
    if found.low is None:
        assert covers(1) < confidence
        return
    rank = int(found.low)
    assert covers(rank) >= confidence
    assert rank + 1 > units / 2 or covers(rank + 1) < confidence + 1e-12


def test_jackknife_of_a_mean_is_students_interval():
    values = np.array([1.0, 2.0, 4.0, 9.0])
    without = (values.sum() - values) / 3
    found = intervals.jackknife(values.mean(), without, 0.95)
    assert bounds(found) == pytest.approx(bounds(intervals.student(values, 0.95)))


def test_hull_is_the_wider_on_each_side():
    one, other = Interval(0.0, 2.0, "a"), Interval(1.0, 3.0, "b")
    assert intervals.hull(one, other) == (0.0, 3.0, "a+b")
    assert intervals.hull(one, intervals.NO_INTERVAL) == one
    assert intervals.hull(intervals.NO_INTERVAL, other) == other
