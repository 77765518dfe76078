"""Intervals for the statistics of evidence: pure mathematics on arrays, one value a unit.

Every function takes the values of the independent units (or their counts) and a two-sided
confidence, and gives an `Interval`; what a unit is, which cells count and how cells are averaged
inside a unit is settled by `armillary.evidence.statistics`.

Sources: Student (1908) for t; Efron, "Better bootstrap confidence intervals" (1987) for BCa;
Wilson (1927) with the exact one-sided bound of Clopper and Pearson (1934) as a floor; Tango,
"Equivalence test and confidence interval for the difference in proportions for the paired-sample
design" (1998), the score interval that belongs to McNemar's test; Fieller (1954) for a ratio of
means; binomial order statistics (David and Nagaraja, "Order Statistics", section 7.1) for a median.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

Floats = NDArray[np.float64]

#: From this many units on, the bootstrap takes the place of Student's t.
BOOTSTRAP_UNITS = 20
_RESAMPLES = 4999
_DRAWS = 4_000_000
_SEED = 20260706


class Interval(NamedTuple):
    """Bounds, in the units of the statistic, and how they were made (``none``: there are none)."""

    low: float | None
    high: float | None
    kind: str


NO_INTERVAL = Interval(None, None, "none")


def z_quantile(confidence: float) -> float:
    """The two-sided normal quantile: 1.96 for .95."""
    return float(special.ndtri(0.5 + confidence / 2))


def t_quantile(confidence: float, df: float) -> float:
    """The two-sided quantile of Student's t with ``df`` degrees of freedom."""
    return float(special.stdtrit(df, 0.5 + confidence / 2))


def is_constant(values: Floats) -> bool:
    """Whether values differ by no more than rounding."""
    scale = float(np.max(np.abs(values)))
    return float(np.ptp(values)) <= 1e-12 * scale


def student(values: Floats, confidence: float) -> Interval:
    """Student's t interval of a mean; of no width for values that do not differ.

    Args:
        values: (n,) one value a unit, n >= 2.
    """
    mean = float(np.mean(values))
    if is_constant(values):
        return Interval(mean, mean, "t")
    n = len(values)
    half = t_quantile(confidence, n - 1) * float(np.std(values, ddof=1)) / math.sqrt(n)
    return Interval(mean - half, mean + half, "t")


@functools.lru_cache(maxsize=2)
def _weights(n: int) -> Floats:
    """(R, n) how often each of n units is drawn in each resample, over n; the same every time."""
    resamples = max(999, min(_RESAMPLES, _DRAWS // n))
    draws = np.random.default_rng(_SEED).integers(0, n, (resamples, n))
    draws += np.arange(resamples)[:, None] * n
    counts = np.bincount(draws.ravel(), minlength=resamples * n)
    return counts.reshape(resamples, n) / n


def bootstrap(
    columns: Floats, statistic: Callable[[Floats], Floats], confidence: float
) -> Interval:
    """BCa bootstrap interval, over units, of a statistic that is a function of means.

    Args:
        columns: (n, k) the quantities whose means the statistic needs.
        statistic: maps means (..., k) to values (...).

    Returns:
        The interval, or none where more than 1 % of the resamples have no value.
    """
    n = len(columns)
    total = columns.sum(axis=0)
    with np.errstate(all="ignore"):
        value = float(statistic(total / n))
        resampled = statistic(_weights(n) @ columns)
        without = statistic((total - columns) / (n - 1))
    return bca(value, resampled, without, n, confidence)


def bca(
    value: float, resampled: Floats, without: Floats, units: int, confidence: float
) -> Interval:
    """The bias-corrected and accelerated percentile interval.

    Args:
        value: the statistic of all units.
        resampled: (R,) of units drawn with replacement.
        without: of all units but one (or but one group of them): the jackknife.
        units: how many there are.
    """
    usable = resampled[np.isfinite(resampled)]
    if len(usable) < 0.99 * len(resampled) or not np.isfinite(without).all():
        return NO_INTERVAL
    if is_constant(np.append(usable, value)):
        return Interval(value, value, "bca")
    below = np.count_nonzero(usable < value) + 0.5 * np.count_nonzero(usable == value)
    bias = special.ndtri(np.clip(below, 0.5, len(usable) - 0.5) / len(usable))
    influence = without.mean() - without
    influence /= max(float(np.max(np.abs(influence))), 1e-300)
    spread = float(np.sum(influence**2))
    skew = float(np.sum(influence**3)) / (6 * spread**1.5) if spread > 0 else 0.0
    # The bootstrap's spread is that of a sample's own values, too small by sqrt((n - 1) / n), and
    # knows no degrees of freedom: Hesterberg's expansion (2015, section 5.3) restores both.
    n = units
    wide = t_quantile(confidence, n - 1) * math.sqrt(n / (n - 1))
    z = bias + wide * np.array([-1.0, 1.0])
    levels = special.ndtr(bias + z / np.maximum(1 - skew * z, 1e-9))
    low, high = np.quantile(usable, levels)
    return Interval(float(low), float(high), "bca")


def wilson(share: float, trials: float, confidence: float) -> Interval:
    """Wilson's score interval of a share, never tighter than the exact one-sided bounds.

    Wilson's lower bound errs too often when successes are few (and its upper one when failures
    are few): the Clopper-Pearson bound that errs in ``1 - confidence`` on one side is its floor.

    Args:
        share: successes over trials, in [0, 1].
        trials: how many, a whole number or an effective one.
    """
    z2 = z_quantile(confidence) ** 2
    centre = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    spread = math.sqrt(z2 * (share * (1 - share) / trials + z2 / (4 * trials**2)))
    half = spread / (1 + z2 / trials)
    low = min(centre - half, 1 - _at_most(1 - share, trials, confidence))
    high = max(centre + half, _at_most(share, trials, confidence))
    return Interval(max(low, 0.0), min(high, 1.0), "wilson")


def _at_most(share: float, trials: float, confidence: float) -> float:
    """Clopper and Pearson's upper bound of a share, which errs in ``1 - confidence``."""
    failures = (1 - share) * trials
    if failures < 1e-9:
        return 1.0
    return float(special.betaincinv(share * trials + 1, failures, confidence))


def paired_counts(gained: float, lost: float, trials: float, confidence: float) -> Interval:
    """Tango's score interval of a difference of paired shares: the inverse of McNemar's test.

    It excludes zero exactly where McNemar's test (without continuity correction) rejects.

    Args:
        gained: share of trials with a success of the first contender only.
        lost: share with a success of the second only.
        trials: how many, a whole number or an effective one.
    """
    z = z_quantile(confidence)

    def score(delta: float) -> float:
        b = 2 * delta - gained - lost - delta * (gained - lost)
        c = -lost * delta * (1 - delta)
        nuisance = max((math.sqrt(max(b * b - 8 * c, 0.0)) - b) / 4, 0.0)
        variance = max(2 * nuisance + delta * (1 - delta), 1e-300)
        return (gained - lost - delta) * math.sqrt(trials / variance)

    def solve(level: float, start: float, end: float, otherwise: float) -> float:
        if (score(start) - level) * (score(end) - level) >= 0:
            return otherwise
        bracket = (start, end)
        found = optimize.root_scalar(lambda d: score(d) - level, bracket=bracket, xtol=1e-10)
        return float(found.root)

    edge, value = 1 - 1e-12, gained - lost
    inside = min(max(value, -edge), edge)
    low = solve(z, -edge, inside, -1.0)
    high = solve(-z, inside, edge, 1.0)
    # With discordant trials of one kind only, the exact one-sided bound on their share is a floor.
    if lost * trials < 1e-9:
        high = max(high, _at_most(gained, trials, confidence))
    if gained * trials < 1e-9:
        low = min(low, -_at_most(lost, trials, confidence))
    return Interval(low, high, "mcnemar")


def fieller(above: Floats, below: Floats, confidence: float) -> Interval:
    """Fieller's interval of mean(above) / mean(below) for paired values.

    Args:
        above, below: (n,) one pair a unit, n >= 2.

    Returns:
        The interval, or none where the mean below cannot be told from zero: the set of ratios
        that fit is then unbounded.
    """
    n, t = len(above), t_quantile(confidence, len(above) - 1)
    # Squares of very large or very small values have no number.
    scale = [max(float(np.max(np.abs(v))), 1e-300) for v in (above, below)]
    above, below = above / scale[0], below / scale[1]
    mean, ratio = float(np.mean(below)), float(np.mean(above) / np.mean(below))
    (vaa, vab), (_, vbb) = np.cov(above, below) / n
    g = t**2 * vbb / mean**2
    if g >= 1:
        return NO_INTERVAL
    shift, rest = (vab / vbb, vaa - vab**2 / vbb) if vbb > 0 else (0.0, 0.0)
    inside = max(vaa - 2 * ratio * vab + ratio**2 * vbb - g * rest, 0.0)
    half = t / (abs(mean) * (1 - g)) * math.sqrt(inside)
    centre = (ratio - g * shift) / (1 - g)
    low, high = (float(np.divide(scale[0], scale[1]) * b) for b in (centre - half, centre + half))
    return Interval(low, high, "fieller")


def order_statistics(values: Floats, confidence: float) -> Interval:
    """Exact interval of a median: the tightest symmetric pair of order statistics that covers.

    Args:
        values: (n,) one value a unit. Under six units no pair covers 95 %: no interval.
    """
    ordered, n = np.sort(values), len(values)
    # The pair (k+1, n-k) misses with probability 2 P(Binomial(n, 1/2) <= k).
    missed = 2 * special.bdtr(np.arange(n), n, 0.5)
    k = int(np.count_nonzero(missed <= 1 - confidence)) - 1
    if k < 0:
        return NO_INTERVAL
    return Interval(float(ordered[k]), float(ordered[n - 1 - k]), "order")


def jackknife(value: float, without: Floats, confidence: float) -> Interval:
    """Student's t on jackknife pseudo-values, centred on the statistic itself.

    Args:
        value: the statistic of all units.
        without: (n,) the statistic of all units but one.
    """
    n = len(without)
    pseudo = n * value - (n - 1) * without
    half = t_quantile(confidence, n - 1) * float(np.std(pseudo, ddof=1)) / math.sqrt(n)
    return Interval(value - half, value + half, "jackknife")


def hull(one: Interval, other: Interval) -> Interval:
    """The wider of two intervals on each side; the one that there is, where there is only one."""
    if one.low is None or one.high is None:
        return other
    if other.low is None or other.high is None:
        return one
    kind = f"{one.kind}+{other.kind}"
    return Interval(min(one.low, other.low), max(one.high, other.high), kind)


def trend(x: Floats, y: Floats, confidence: float) -> Interval:
    """Student's t interval of a least-squares slope of y on x.

    Args:
        x, y: (n,) one point a unit, n >= 3, x not all equal.
    """
    dx, dy = x - x.mean(), y - y.mean()
    sxx = float(dx @ dx)
    slope = float(dx @ dy) / sxx
    df = len(x) - 2
    left = float(np.sum((dy - slope * dx) ** 2))
    half = t_quantile(confidence, df) * math.sqrt(left / df / sxx)
    return Interval(slope - half, slope + half, "t")
