"""Does a part matter? Ours without it, against ours, cell by cell."""

from __future__ import annotations

import dataclasses

import numpy as np

from armillary.evidence.comparisons import Run, worst_cell
from armillary.evidence.shapes import OURS, Ablation, Claim, Condition, Stat
from armillary.evidence.statistics import Estimate, estimate, is_count, survivors


@dataclasses.dataclass(frozen=True)
class AblationFound:
    """What leaving a part out did: the ratio to ours, and whether it hurts."""

    ablation: Ablation
    ratio: Estimate
    hurts: bool | None


def ablate(run: Run, claim: Claim, ablation: Ablation) -> AblationFound:
    metric = run.experiment.metric(ablation.metric)
    run.scope(ablation.where, claim)
    stat = Stat(ablation.metric, ablation.name, (OURS,), "ratio", "geomean", ablation.where)
    cells = survivors(run.table, stat)
    both = [cells.value(ablation.metric, who) for who in (ablation.name, OURS)]
    positive = all((values > 0).all() for values in both)
    means = dataclasses.replace(stat, pool="ratio_of_means")
    ratio = estimate(run.table, stat if positive and not is_count(metric) else means)
    if len(cells) and float(np.mean(both[1])) <= 0:
        ratio = Estimate(None, units=ratio.units, problem="ours is not positive")
    exact = [c for c in claim.conditions if c.every and c.stat.metric == ablation.metric]
    if exact:
        return AblationFound(ablation, ratio, _breaks(run, ablation, exact))
    if metric.better == "neither":
        return AblationFound(ablation, ratio, None)
    sign = 1.0 if metric.better == "lower" else -1.0
    if ratio.low is None or ratio.high is None:
        return AblationFound(ablation, ratio, _hurts_by_difference(run, ablation, sign))
    ends = (sign * (ratio.low - 1), sign * (ratio.high - 1))
    return AblationFound(ablation, ratio, _hurts(ends, ablation.margin))


def _hurts(ends: tuple[float, float], margin: float) -> bool | None:
    """From the interval of how much worse it gets: beyond the margin, inside it, or unclear."""
    low, high = min(ends), max(ends)
    return True if low > margin else False if high <= margin else None


def _hurts_by_difference(run: Run, ablation: Ablation, sign: float) -> bool | None:
    """Where a ratio to ours has no interval: the difference, the margin as a share of |ours|."""
    stat = Stat(ablation.metric, ablation.name, (OURS,), "difference", where=ablation.where)
    counts = is_count(run.experiment.metric(ablation.metric))
    found = estimate(run.table, stat, counts=counts)
    if found.low is None or found.high is None:
        return None
    ours = survivors(run.table, stat).value(ablation.metric, OURS)
    ends = (sign * found.low, sign * found.high)
    return _hurts(ends, ablation.margin * abs(float(np.mean(ours))))


def _breaks(run: Run, ablation: Ablation, exact: list[Condition]) -> bool | None:
    """Whether the ablation breaks a cell of a condition that every cell must satisfy."""
    seen = None
    for condition in exact:
        stat = dataclasses.replace(
            condition.stat,
            of=ablation.name,
            where=condition.stat.where if ablation.where is None else ablation.where,
        )
        for peer in stat.over or (None,):
            alone = dataclasses.replace(stat, over=(peer,) if peer else ())
            found, broken = worst_cell(run.table, alone, peer, condition)
            if broken:
                return True
            seen = False if found.units and not found.problem else seen
    return seen
