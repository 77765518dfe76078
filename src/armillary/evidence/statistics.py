"""Statistics of an experiment's table: one number, its interval, and over how many units.

Only cells that *all* contenders of the statistic finished count; cells of one unit are averaged
inside it, so that the interval is over independent units. How each form and pool is computed
stands in `estimate`; the intervals themselves in `armillary.evidence.intervals`.

A statistic that has no value (a geometric mean of zero, a slope without its covariate) is told in
`Estimate.problem`, never raised and never a NaN: one ill-posed claim must not cost a whole run.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import special

from armillary.evidence import intervals
from armillary.evidence.intervals import BOOTSTRAP_UNITS, NO_INTERVAL, Floats, Interval
from armillary.evidence.shapes import Metric, Pool, Stat
from armillary.evidence.table import Table

#: Fewer units give no interval.
MIN_UNITS = 3

#: The unit of a metric whose values are 0 or 1: its shares get Wilson's and McNemar's intervals.
COUNT_UNIT = "0/1"

_FUNCTION_RESAMPLES = 999
_JACKKNIFE_GROUPS = 200
_POWER = 0.9
_EXTREME = "the statistic is too large or too small for a number"


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A statistic with its interval.

    Attributes:
        value: the statistic, or None where it has no value.
        low, high: the interval's bounds, None where there is none.
        interval: how the bounds were made: ``t``, ``bca``, ``wilson``, ``mcnemar``, ``fieller``,
            ``jackknife``, ``jackknife+bca``, ``order``, ``observed`` (an extreme of the measured
            cells), or ``none``.
        units: independent units that gave values.
        problem: why there is no value or no interval, in words; empty where all is well.
        log: whether the interval was made on logarithms.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    interval: str = "none"
    units: int = 0
    problem: str = ""
    log: bool = False


class _NoValueError(Exception):
    """The statistic has no value; the message says why."""


@dataclasses.dataclass(frozen=True)
class _Units:
    """Cells grouped by unit: ``label`` (C,) in 0..n-1."""

    label: NDArray[np.intp]
    size: NDArray[np.intp]

    @classmethod
    def of(cls, cells: Table) -> _Units:
        _, label = np.unique(cells.unit, return_inverse=True)
        return cls(label.astype(np.intp), np.bincount(label).astype(np.intp))

    def __len__(self) -> int:
        return len(self.size)

    def mean(self, values: Floats) -> Floats:
        """(n,) mean of the cells of each unit."""
        return np.bincount(self.label, values, minlength=len(self)) / self.size


def is_count(metric: Metric) -> bool:
    """Whether a metric is declared to be 0 or 1 in every cell: its unit is ``"0/1"``."""
    return metric.unit == COUNT_UNIT


def effective_pool(stat: Stat) -> Pool:
    """The pool that is really used.

    A plain mean of ratios is the geometric one, and where there is no denominator a ratio of means
    is the mean.
    """
    if stat.form == "ratio":
        return "geomean" if stat.pool == "mean" else stat.pool
    return "mean" if stat.pool == "ratio_of_means" else stat.pool


def survivors(table: Table, stat: Stat) -> Table:
    """The cells of a statistic: its cases, finished by all of its contenders.

    A statistic that is a function of the table keeps every cell of its cases unless it names a
    metric too.
    """
    kept = table.where(stat.where)
    if stat.fn is not None and not stat.metric:
        return kept
    return kept.finished(stat.metric, (stat.of, *stat.over))


def estimate(
    table: Table,
    stat: Stat,
    peer: str | None = None,
    confidence: float = 0.95,
    *,
    counts: bool = False,
) -> Estimate:
    """A statistic of a table and its two-sided interval over units.

    ===============  ==========================================================================
    level, mean      mean of the units; Student t under 20 units, BCa from 20; Wilson for counts
    difference       the same on ours - peer, cell by cell; Tango's McNemar interval for counts
    level, geomean   on logarithms
    ratio, geomean   geometric mean of ours / peer, cell by cell: on logarithms
    ratio of means   mean of ours / mean of peer; Fieller under 20 units, BCa from 20
    slope            least squares of log metric on log covariate: inside each unit where a unit
                     holds several values of it, else across units
    median           of the units; exact order statistics (none under six units)
    max, min         over single cells, not averaged: the bounds are the extreme itself, for the
                     statement is about the worst cell measured and no unit can soften it
    fn               BCa, resampling units; under 20 units the wider of it and the jackknife's t
    ===============  ==========================================================================

    Fewer than three units give a value and no interval.

    Args:
        table: the cells of one experiment.
        stat: what is computed. Only cells that ``stat.of`` and all of ``stat.over`` finished count.
        peer: which of ``stat.over`` is compared with; needed where there are several.
        confidence: two-sided, in (0, 1).
        counts: the metric is 0 or 1 in every cell (`is_count`).

    Raises:
        ValueError: ``peer`` is not one of ``stat.over``, or ``confidence`` is outside (0, 1).
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, got {confidence!r}")
    if stat.fn is None and stat.over:
        peer = stat.over[0] if peer is None and len(stat.over) == 1 else peer
        if peer not in stat.over:
            raise ValueError(f"peer must be one of {', '.join(stat.over)}, got {peer!r}")
    cells = survivors(table, stat)
    units = cells.n_units
    if not units:
        return Estimate(None, problem="no cell was finished by all who are compared")
    try:
        with np.errstate(all="ignore"):
            if stat.fn is not None:
                return _cut(_of_function(cells, stat.fn, confidence), stat.within)
            return _pooled(cells, stat, peer, confidence, counts)
    except _NoValueError as problem:
        return Estimate(None, units=units, problem=str(problem))
    except ArithmeticError:
        return Estimate(None, units=units, problem=_EXTREME)


def cell_values(cells: Table, stat: Stat, peer: str | None) -> Floats:
    """(C,) the statistic of each single cell; a ratio to zero is infinite, zero to zero NaN."""
    if stat.fn is not None:
        found = [_call(stat.fn, cells.pick(np.array([i]))) for i in range(len(cells))]
        return np.array([math.nan if f is None else f for f in found], dtype=float)
    ours = cells.value(stat.metric, stat.of)
    if peer is None:
        return ours
    theirs = cells.value(stat.metric, peer)
    with np.errstate(all="ignore"):
        return ours / theirs if stat.form == "ratio" else ours - theirs


def _pooled(
    cells: Table, stat: Stat, peer: str | None, confidence: float, counts: bool
) -> Estimate:
    if counts:
        _check_counts(cells, stat, peer)
    pool, units = effective_pool(stat), _Units.of(cells)
    if stat.form == "slope":
        return _slope(cells, stat, units, confidence)
    if pool in ("max", "min"):
        return _extreme(_quotients(cells, stat, peer), pool, units)
    if pool == "median":
        values = units.mean(_quotients(cells, stat, peer))
        found = intervals.order_statistics(values, confidence)
        return _finish(float(np.median(values)), found, units)
    if stat.form == "ratio" and pool == "ratio_of_means":
        return _ratio_of_means(cells, stat, peer, units, confidence)
    if pool == "geomean":
        return _geometric(cells, stat, peer, units, confidence)
    values = cell_values(cells, stat, peer)
    mean = float(np.mean(units.mean(values)))
    if len(units) < MIN_UNITS:
        return _finish(mean, NO_INTERVAL, units)
    if counts:
        return _finish(mean, _share(cells, stat, peer, units, confidence), units)
    return _finish(mean, _mean_interval(units.mean(values), confidence), units)


def _finish(value: float, interval: Interval, units: _Units, log: bool = False) -> Estimate:
    """An estimate with finite numbers only, and no interval under three units."""
    if not math.isfinite(value):
        raise _NoValueError(_EXTREME)
    n = len(units)
    if n < MIN_UNITS:
        return Estimate(value, units=n, log=log)
    bounds = (interval.low, interval.high)
    if any(b is not None and not math.isfinite(b) for b in bounds):
        return Estimate(value, units=n, log=log, problem="the interval has no finite bound")
    return Estimate(value, *bounds, interval.kind, n, log=log)


def _mean_interval(values: Floats, confidence: float) -> Interval:
    """Student's t under twenty units, BCa from twenty."""
    if len(values) < MIN_UNITS:
        return NO_INTERVAL
    if len(values) < BOOTSTRAP_UNITS:
        return intervals.student(values, confidence)
    return intervals.bootstrap(values[:, None], lambda m: m[..., 0], confidence)


def _where(cells: Table, bad: NDArray[np.bool_]) -> str:
    at = int(np.flatnonzero(bad)[0])
    return f"case {cells.cases[cells.case[at]].name!r}, seed {cells.seed[at]}"


def _positive(cells: Table, stat: Stat, who: str, why: str) -> Floats:
    values = cells.value(stat.metric, who)
    if (values <= 0).any():
        at = int(np.flatnonzero(values <= 0)[0])
        raise _NoValueError(
            f"{why} needs positive values, and {stat.metric} of {who} is {values[at]:g} in "
            f"{_where(cells, values <= 0)}"
        )
    return values


def _geometric(
    cells: Table, stat: Stat, peer: str | None, units: _Units, confidence: float
) -> Estimate:
    if stat.form == "difference":
        raise _NoValueError("a difference has no geometric mean: use pool='mean'")
    hint = "a geometric mean" if peer is None else "a ratio (unless pool='ratio_of_means')"
    logs = np.log(_positive(cells, stat, stat.of, hint))
    if peer is not None:
        logs = logs - np.log(_positive(cells, stat, peer, hint))
    values = units.mean(logs)
    low, high, kind = _mean_interval(values, confidence)
    found = Interval(_exp(low), _exp(high), kind)
    return _finish(float(np.exp(np.mean(values))), found, units, log=True)


def _exp(bound: float | None) -> float | None:
    return None if bound is None else float(np.exp(bound))


def _quotients(cells: Table, stat: Stat, peer: str | None) -> Floats:
    """Cell values for medians and extremes; ratios need a positive denominator."""
    if stat.form == "ratio" and peer is not None:
        _positive(cells, stat, peer, "the denominator of a ratio")
    return cell_values(cells, stat, peer)


def _extreme(values: Floats, pool: Pool, units: _Units) -> Estimate:
    value = float(values.max() if pool == "max" else values.min())
    return _finish(value, Interval(value, value, "observed"), units)


def _ratio_of_means(
    cells: Table, stat: Stat, peer: str | None, units: _Units, confidence: float
) -> Estimate:
    above = units.mean(cells.value(stat.metric, stat.of))
    below = units.mean(cells.value(stat.metric, peer or ""))
    if float(np.mean(below)) == 0:
        raise _NoValueError(f"the mean {stat.metric} of {peer} is zero: nothing to divide by")
    value = float(np.mean(above) / np.mean(below))
    if len(units) < MIN_UNITS or not math.isfinite(value):
        return _finish(value, NO_INTERVAL, units)
    found = NO_INTERVAL
    if len(units) >= BOOTSTRAP_UNITS:
        columns = np.column_stack([above, below])
        found = intervals.bootstrap(columns, lambda m: m[..., 0] / m[..., 1], confidence)
    if found.kind == "none":
        found = intervals.fieller(above, below, confidence)
    if found.kind == "none":
        problem = f"the mean {stat.metric} of {peer} cannot be told from zero"
        return Estimate(value, units=len(units), problem=problem)
    return _finish(value, found, units)


def _check_counts(cells: Table, stat: Stat, peer: str | None) -> None:
    for who in (stat.of, peer):
        values = cells.value(stat.metric, who) if who else np.zeros(0)
        bad = (values != 0) & (values != 1)
        if bad.any():
            raise _NoValueError(
                f"{stat.metric} has the unit {COUNT_UNIT!r}, and {who} gave "
                f"{values[bad][0]:g} in {_where(cells, bad)}"
            )


def _share(
    cells: Table, stat: Stat, peer: str | None, units: _Units, confidence: float
) -> Interval:
    """Wilson's or McNemar's interval; with several cells a unit, on their effective number."""
    ours = cells.value(stat.metric, stat.of)
    if peer is None:
        share = units.mean(ours)
        p = float(np.mean(share))
        return intervals.wilson(p, _effective(p * (1 - p), share, units, confidence), confidence)
    theirs = cells.value(stat.metric, peer)
    gained = float(np.mean(units.mean((ours > theirs).astype(float))))
    lost = float(np.mean(units.mean((ours < theirs).astype(float))))
    variance = gained + lost - (gained - lost) ** 2
    trials = _effective(variance, units.mean(ours - theirs), units, confidence)
    return intervals.paired_counts(gained, lost, trials, confidence)


def _effective(variance: float, values: Floats, units: _Units, confidence: float) -> float:
    """How many independent trials the cells are worth.

    With one cell a unit that is their number. Else the variance of one trial over the squared
    standard error of the units' mean, between the units' number and the cells', times
    (z / t)^2 for the error being itself estimated from few units (Korn and Graubard 1998).
    """
    n, cells = len(units), int(units.size.sum())
    if n == cells:
        return float(n)
    error = float(np.var(values, ddof=1)) / n
    trials = variance / error if error > 0 and variance > 0 else float(n)
    shrink = intervals.z_quantile(confidence) / intervals.t_quantile(confidence, n - 1)
    return max(min(max(trials, n), cells) * shrink**2, 1.0)


def _slope(cells: Table, stat: Stat, units: _Units, confidence: float) -> Estimate:
    x = cells.x(stat.along)
    bad = ~(x > 0)
    if bad.any():
        raise _NoValueError(
            f"a slope along {stat.along!r} needs it positive in {_where(cells, bad)}"
        )
    x = np.log(x)
    y = np.log(_positive(cells, stat, stat.of, "a log-log slope"))
    inside = np.array([len(np.unique(x[units.label == u])) for u in range(len(units))])
    if (inside >= 2).all():
        slopes = _slopes_inside(x, y, units)
        return _finish(float(np.mean(slopes)), _mean_interval(slopes, confidence), units)
    x, y = units.mean(x), units.mean(y)
    if (inside >= 2).any() or len(np.unique(x)) < 2:
        raise _NoValueError(f"a slope along {stat.along!r} needs two values of it at least")
    return _slope_across(x, y, units, confidence)


def _slopes_inside(x: Floats, y: Floats, units: _Units) -> Floats:
    dx = x - units.mean(x)[units.label]
    dy = y - units.mean(y)[units.label]
    return units.mean(dx * dy) / units.mean(dx * dx)


def _slope_across(x: Floats, y: Floats, units: _Units, confidence: float) -> Estimate:
    dx, dy = x - x.mean(), y - y.mean()
    value = float(dx @ dy / (dx @ dx))
    if len(units) < MIN_UNITS:
        return _finish(value, NO_INTERVAL, units)
    if len(units) < BOOTSTRAP_UNITS:
        return _finish(value, intervals.trend(dx, dy, confidence), units)
    columns = np.column_stack([dx, dy, dx * dx, dx * dy])

    def slope(mean: Floats) -> Floats:
        mx, my, mxx, mxy = np.moveaxis(mean, -1, 0)
        return (mxy - mx * my) / (mxx - mx * mx)

    return _finish(value, intervals.bootstrap(columns, slope, confidence), units)


def _call(fn: Callable[[Table], float | None], table: Table) -> float | None:
    """The function's finite value, or None; what it raises is a missing value too."""
    try:
        value = fn(table)
    except Exception:
        return None
    return float(value) if value is not None and math.isfinite(value) else None


def _of_function(cells: Table, fn: Callable[[Table], float | None], confidence: float) -> Estimate:
    units = _Units.of(cells)
    value = _call(fn, cells)
    if value is None:
        raise _NoValueError("the statistic has no value on these cells" + _raised(fn, cells))
    n = len(units)
    if n < MIN_UNITS:
        return _finish(value, NO_INTERVAL, units)
    order = np.argsort(units.label, kind="stable")
    starts = np.concatenate([[0], np.cumsum(units.size)])
    members = [order[starts[u] : starts[u + 1]] for u in range(n)]

    def of(drawn: NDArray[np.intp]) -> float:
        picked = cells.pick(np.concatenate([members[u] for u in drawn]))
        fresh = np.repeat(np.arange(len(drawn)), units.size[drawn]).astype(np.intp)
        found = _call(fn, dataclasses.replace(picked, unit=fresh))
        return math.nan if found is None else found

    groups = np.array_split(np.arange(n), min(n, _JACKKNIFE_GROUPS))
    without = np.array([of(np.delete(np.arange(n), group)) for group in groups])
    rng = np.random.default_rng(n)
    resampled = np.array([of(rng.integers(0, n, n)) for _ in range(_FUNCTION_RESAMPLES)])
    found = intervals.bca(value, resampled, without, n, confidence)
    if n < BOOTSTRAP_UNITS:
        found = intervals.hull(intervals.jackknife(value, without, confidence), found)
    if found.kind == "none" or not np.isfinite(without).all():
        problem = "the statistic has no value on some resamples of the units"
        return Estimate(value, units=n, problem=problem)
    return _finish(value, found, units)


def _cut(found: Estimate, within: tuple[float, float] | None) -> Estimate:
    """An interval without what its statistic cannot be, such as a share above one."""
    if within is None or found.low is None or found.high is None:
        return found
    low, high = max(found.low, within[0]), min(found.high, within[1])
    return dataclasses.replace(found, low=low, high=high)


def _raised(fn: Callable[[Table], float | None], cells: Table) -> str:
    try:
        fn(cells)
    except Exception as error:
        return f": it raised {type(error).__name__}: {error}"
    return ""


def units_to_decide(
    found: Estimate,
    at_most: float | None,
    at_least: float | None,
    confidence: float = 0.95,
) -> int | None:
    """About how many units would put the whole interval on one side of the bounds.

    Assumes that the estimate and the spread between units stay as they are, and asks for a chance
    of 90 % that the interval then decides: the smallest n with
    (t + z_.9) * spread / sqrt(n) <= distance to the bound, on logarithms where the interval was
    made there.

    Returns:
        The number, or None where no number would do (no interval, or an estimate on the bound).
    """
    if found.value is None or found.low is None or found.high is None:
        return None
    read = math.log if found.log else float
    if found.log and found.low <= 0:
        return None
    value, low, high = read(found.value), read(found.low), read(found.high)
    bounds = [b for b in (at_most, at_least) if b is not None and not (found.log and b <= 0)]
    bounds = [read(b) for b in bounds]
    outside = (at_most is not None and found.value > at_most) or (
        at_least is not None and found.value < at_least
    )
    if outside:
        bounds = [min(bounds, key=lambda b: abs(b - value))]
    needed = [
        _units_for(
            found.units, high - value if b > value else value - low, abs(b - value), confidence
        )
        for b in bounds
    ]
    return max((n for n in needed if n is not None), default=None) if all(needed) else None


def _units_for(units: int, half: float, distance: float, confidence: float) -> int | None:
    if distance <= 0 or half <= 0:
        return None
    spread = half / intervals.t_quantile(confidence, units - 1) * math.sqrt(units)
    power = float(special.ndtri(_POWER))
    least = ((intervals.z_quantile(confidence) + power) * spread / distance) ** 2
    if least > 1e12:
        return None
    needed = max(math.ceil(least), MIN_UNITS)
    # Student's quantile is the larger, by little: a few steps from the normal solution.
    while (intervals.t_quantile(confidence, needed - 1) + power) * spread > distance * math.sqrt(
        needed
    ):
        needed += 1
    return needed
