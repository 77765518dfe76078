"""From measurements to verdicts: `judge` reads an experiment's rows and says what holds.

A pure function of the rows: what was absent, busy or broken is told by the rows themselves. The
rules, in their order, are those of the page "How verdicts are computed"; the statistics are in
`armillary.evidence.statistics`, the sentences in `armillary.evidence.reasons`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import numpy as np

from armillary.evidence import reasons
from armillary.evidence.shapes import (
    OURS,
    PROFILES,
    Ablation,
    Case,
    Claim,
    Condition,
    Contender,
    Experiment,
    ProfileName,
    Row,
    Stat,
)
from armillary.evidence.statistics import (
    MIN_UNITS,
    Estimate,
    cell_values,
    effective_pool,
    estimate,
    is_count,
    survivors,
)
from armillary.evidence.table import Table
from armillary.output.files import finite

Verdict = Literal["none", "not run", "fails", "holds", "partly", "unclear"]
Status = Literal["met", "missed", "unclear", "not run", "none"]

#: A required peer that raised in a larger share of its cells lets a claim hold partly at most.
MAX_RAISED = 0.20

_Cell = tuple[str, int]


def judge(
    experiment: Experiment,
    rows: Sequence[Row],
    profile: ProfileName,
    *,
    artefact_seconds: float = 0.0,
    command: str = "",
    seed_base: int = 0,
) -> list[dict[str, Any]]:
    """Judge every claim of an experiment from its rows.

    Args:
        experiment: what was stated.
        rows: measurements; those of other experiments, profiles or cases are left aside.
        profile: the profile that ran. ``smoke`` gives figures and no verdict.
        artefact_seconds: seconds that preparing artefacts took.
        command: what a user types to measure this again.
        seed_base: the first seed, told where nothing was measured.

    Returns:
        One object a claim, in the form that `armillary.evidence.bundle` describes; ready for JSON
        (finite numbers only).

    Raises:
        ValueError: ``profile`` is not one of the four, or a claim's ``where`` cannot read a case.
    """
    if profile not in PROFILES:
        raise ValueError(f"profile must be one of {', '.join(PROFILES)}, got {profile!r}")
    run = Run.of(experiment, rows, profile)
    planned = range(seed_base, seed_base + experiment.seeds.get(profile, 0))
    measured = sorted({row.seed for row in run.rows})
    shared = {
        "seeds": measured or list(planned),
        "seconds": round(sum(row.seconds for row in run.rows), 3),
        "artefact_seconds": artefact_seconds,
        "command": command,
    }
    return [finite({**_judged(run, claim), **shared}) for claim in experiment.claims]


@dataclasses.dataclass(frozen=True)
class Run:
    """The rows of one experiment and profile, arranged for its claims.

    Attributes:
        rows: those of the experiment's cases in this profile.
        table: values of the cells that a contender finished in every repeat.
        ok, failed, absent: by contender, its cells with the first row that says so.
    """

    experiment: Experiment
    profile: ProfileName
    cases: tuple[Case, ...]
    rows: tuple[Row, ...]
    table: Table
    ok: dict[str, dict[_Cell, Row]]
    failed: dict[str, dict[_Cell, Row]]
    absent: dict[str, dict[_Cell, Row]]

    @classmethod
    def of(cls, experiment: Experiment, rows: Sequence[Row], profile: ProfileName) -> Run:
        cases = tuple(experiment.cases.get(profile, ()))
        known = {case.name for case in cases}
        mine = tuple(
            row
            for row in rows
            if row.experiment == experiment.id and row.profile == profile and row.case in known
        )
        by: dict[str, dict[str, dict[_Cell, Row]]] = {"ok": {}, "failed": {}, "not run": {}}
        for row in mine:
            by[row.status].setdefault(row.contender, {}).setdefault((row.case, row.seed), row)
        whole = [
            row
            for row in mine
            if (row.case, row.seed) not in by["failed"].get(row.contender, {})
            and (row.case, row.seed) not in by["not run"].get(row.contender, {})
        ]
        # The others keep their line in the table without a value.
        finished = {id(row) for row in whole}
        rest = [dataclasses.replace(r, status="failed") for r in mine if id(r) not in finished]
        table = Table.from_rows([*whole, *rest], cases, experiment.unit)
        return cls(experiment, profile, cases, mine, table, by["ok"], by["failed"], by["not run"])

    @functools.cached_property
    def contenders(self) -> dict[str, Contender]:
        return {contender.name: contender for contender in self.experiment.contenders}

    def required(self, name: str) -> bool:
        """Whether a verdict needs this contender; ours always."""
        return name == OURS or name not in self.contenders or self.contenders[name].required

    def scope(self, where: Callable[[Case], bool] | None, claim: Claim) -> frozenset[str]:
        """The names of the cases that a condition reads."""
        kept = set()
        for case in self.cases:
            try:
                if where is None or where(case):
                    kept.add(case.name)
            except Exception as error:
                raise ValueError(
                    f"claim {claim.id!r}: `where` cannot read case {case.name!r} "
                    f"({type(error).__name__}: {error})"
                ) from error
        return frozenset(kept)

    def cells(
        self, of: dict[str, dict[_Cell, Row]], who: str, scope: frozenset[str]
    ) -> dict[_Cell, Row]:
        """The cells of a contender within a scope, from ``ok``, ``failed`` or ``absent``."""
        return {cell: row for cell, row in of.get(who, {}).items() if cell[0] in scope}

    def unfinished(self, who: str, metric: str, scope: frozenset[str]) -> dict[_Cell, str]:
        """Attempted cells that gave no value of the metric, each with the reason."""
        raised = self.cells(self.failed, who, scope)
        found = {cell: reasons.failure(row) for cell, row in raised.items()}
        if metric:
            for cell, row in self.cells(self.ok, who, scope).items():
                if metric not in row.metrics:
                    found.setdefault(cell, f"it gave no {metric}")
        return found

    def attempted(self, who: str, scope: frozenset[str]) -> set[_Cell]:
        return {*self.cells(self.ok, who, scope), *self.cells(self.failed, who, scope)}

    def units(self, cells: Iterable[_Cell]) -> int:
        at = 0 if self.experiment.unit == "case" else 1
        return len({cell[at] for cell in cells})


@dataclasses.dataclass(frozen=True)
class Compared:
    """One condition, against one peer where it compares.

    Attributes:
        index: of the condition in its claim.
        scope: names of the cases it reads.
        found: the statistic.
        status: ``none`` in smoke; ``not run`` where too few units were shared.
        counts: False where an optional contender is absent: no verdict depends on it.
        broken: for an ``every`` condition, the first cell that breaks it, in words.
    """

    index: int
    condition: Condition
    peer: str | None
    scope: frozenset[str]
    found: Estimate
    status: Status
    counts: bool = True
    broken: str = ""

    @property
    def stat(self) -> Stat:
        return self.condition.stat

    @property
    def who(self) -> tuple[str, ...]:
        """Whose cells it reads."""
        return (self.stat.of, *(self.stat.over if self.peer is None else (self.peer,)))

    @property
    def slack(self) -> float:
        """How far the interval (or the value) stays inside the bounds; negative outside."""
        low = self.found.value if self.found.low is None else self.found.low
        high = self.found.value if self.found.high is None else self.found.high
        if low is None or high is None:
            return math.inf
        above = math.inf if self.condition.at_most is None else self.condition.at_most - high
        below = math.inf if self.condition.at_least is None else low - self.condition.at_least
        return min(above, below)


@dataclasses.dataclass(frozen=True)
class AblationFound:
    """What leaving a part out did: the ratio to ours, and whether it hurts."""

    ablation: Ablation
    ratio: Estimate
    hurts: bool | None


def _judged(run: Run, claim: Claim) -> dict[str, Any]:
    compared = _compare(run, claim)
    ablations = [_ablate(run, claim, ablation) for ablation in claim.ablations]
    verdict, reason = _verdict(run, claim, compared)
    if run.profile != "smoke" and verdict != "not run":
        reason = " ".join([reason, *filter(None, map(reasons.ablation, ablations))])
    names = _names(claim)
    scope = frozenset().union(*(c.scope for c in compared))
    return {
        "method": run.rows[0].method if run.rows else "",
        "claim": claim.id,
        "experiment": run.experiment.id,
        "statement": claim.statement,
        "profile": run.profile,
        "verdict": verdict,
        "reason": reason,
        "paper": claim.paper,
        "conditions": _conditions_json(run, compared),
        "contenders": _levels(run, claim, names, scope),
        "ablations": [_ablation_json(found) for found in ablations],
        "absent": _absent_json(run, names, scope),
        "errors": _errors_json(run, names, scope),
    }


def _names(claim: Claim) -> list[str]:
    """Everyone whom a claim reads, ours first."""
    found = [OURS]
    for condition in claim.conditions:
        found += [condition.stat.of, *condition.stat.over]
    return list(dict.fromkeys([*found, *(a.name for a in claim.ablations)]))


# Conditions ------------------------------------------------------------------------------------


def _compare(run: Run, claim: Claim) -> list[Compared]:
    compared: list[Compared] = []
    for index, condition in enumerate(claim.conditions):
        scope = run.scope(condition.stat.where, claim)
        peers = condition.stat.over if condition.stat.fn is None else ()
        for peer in peers or (None,):
            compared.append(_compare_one(run, index, condition, peer, scope))
    return compared


def _shared_stat(run: Run, stat: Stat, peer: str | None, scope: frozenset[str]) -> Stat:
    """The statistic over the required peers that finished any cell, and this peer.

    An optional peer never takes cells from the comparison with another; a required one that
    finished nothing would leave nothing to compare with the rest.
    """
    if not stat.over:
        return stat
    inside = run.table.where(lambda case: case.name in scope)
    keep = tuple(
        name
        for name in stat.over
        if name == peer
        or (run.required(name) and np.isfinite(inside.value(stat.metric, name)).any())
    )
    return dataclasses.replace(stat, over=keep)


def _compare_one(
    run: Run, index: int, condition: Condition, peer: str | None, scope: frozenset[str]
) -> Compared:
    stat = _shared_stat(run, condition.stat, peer, scope)
    broken = ""
    if condition.every:
        found, broken = _every(run.table, stat, peer, condition)
    else:
        counts = stat.fn is None and is_count(run.experiment.metric(stat.metric))
        found = estimate(run.table, stat, peer, counts=counts)
    status = _status(condition, found, broken)
    optional = not run.required(stat.of) or (peer is not None and not run.required(peer))
    counts = not (optional and found.units < MIN_UNITS)
    if run.profile == "smoke":
        status = "none"
    return Compared(index, condition, peer, scope, found, status, counts, broken)


def _status(condition: Condition, found: Estimate, broken: str) -> Status:
    if found.units < MIN_UNITS:
        return "not run"
    if condition.every:
        return "unclear" if found.problem else "missed" if broken else "met"
    if found.low is None or found.high is None:
        return "unclear"
    at_most = math.inf if condition.at_most is None else condition.at_most
    at_least = -math.inf if condition.at_least is None else condition.at_least
    if at_least <= found.low and found.high <= at_most:
        return "met"
    return "missed" if found.low > at_most or found.high < at_least else "unclear"


def _every(
    table: Table, stat: Stat, peer: str | None, condition: Condition
) -> tuple[Estimate, str]:
    """The worst single cell, and in words the first cell that breaks the condition."""
    cells = survivors(table, stat)
    if not len(cells):
        return Estimate(None, problem="no cell was finished by all who are compared"), ""
    values, units = cell_values(cells, stat, peer), cells.n_units
    at_most = math.inf if condition.at_most is None else condition.at_most
    at_least = -math.inf if condition.at_least is None else condition.at_least
    excess = np.maximum(values - at_most, at_least - values)
    excess = np.where(np.isinf(values) & (values > 0) & np.isinf(at_most), -np.inf, excess)
    broken = np.flatnonzero(excess > 0)
    told = reasons.cell(cells, int(broken[0]), values, len(broken)) if len(broken) else ""
    if np.isnan(values).any() and not told:
        at = int(np.flatnonzero(np.isnan(values))[0])
        problem = f"the statistic has no value in {reasons.place(cells, at)}"
        return Estimate(None, units=units, problem=problem), ""
    worst = float(values[int(np.nanargmax(excess))])
    value = worst if math.isfinite(worst) else None
    return Estimate(value, units=units), told


# Verdict ---------------------------------------------------------------------------------------


def _verdict(run: Run, claim: Claim, compared: list[Compared]) -> tuple[Verdict, str]:
    """The first rule that applies, with its sentence."""
    if run.profile == "smoke":
        return "none", "The smoke profile shows that the evidence runs; it judges nothing."
    counted = [c for c in compared if c.counts]
    not_run = _not_run(run, compared, counted)
    if not_run:
        return "not run", not_run
    failed = _ours_failed(run, compared) or reasons.broken(counted)
    if failed:
        return "fails", failed
    shared = next((c for c in counted if c.status == "not run"), None)
    if shared is not None:
        return "not run", _too_few_shared(run, shared)
    if all(c.status == "met" for c in counted):
        return _held(run, counted)
    return _not_all_met(run, claim, counted)


def _held(run: Run, counted: list[Compared]) -> tuple[Verdict, str]:
    fragile = _fragile(run, counted)
    told = reasons.met(counted)
    if fragile:
        return "partly", f"{told} But {fragile}"
    return "holds", told


def _not_all_met(run: Run, claim: Claim, counted: list[Compared]) -> tuple[Verdict, str]:
    missed = [c for c in counted if c.status == "missed"]
    unclear = [c for c in counted if c.status == "unclear"]
    if _wholly_better(run, claim, counted):
        short = reasons.short_of((missed or unclear)[0])
        return "partly", f"Better than every peer, but not by what is claimed: {short}"
    if missed:
        return "fails", reasons.missed(missed)
    return "unclear", reasons.unclear(unclear, run.experiment.unit)


def _not_run(run: Run, compared: list[Compared], counted: list[Compared]) -> str:
    """Why the claim cannot be judged yet, or nothing."""
    if not run.cases:
        return f"The {run.profile} profile has no cases of this experiment: choose a larger one."
    if not run.rows:
        return "Nothing was measured."
    for condition in compared:
        if not condition.scope:
            return (
                f"None of the {run.profile} profile's cases belongs to this claim: "
                "choose a larger one."
            )
    for condition in counted or compared:
        for who in condition.who:
            told = _missing(run, who, condition.scope, len(counted) == 0)
            if told:
                return told
    for condition in counted:
        units = run.units(run.attempted(condition.stat.of, condition.scope))
        if units < MIN_UNITS:
            return reasons.few_units(units, run.experiment.unit)
    return "" if counted else "No peer that this claim compares with finished three units."


def _missing(run: Run, who: str, scope: frozenset[str], even_optional: bool) -> str:
    """What a contender lacks in its cells, if the verdict needs it."""
    if not (run.required(who) or even_optional):
        return ""
    absent = run.cells(run.absent, who, scope)
    expected = len(scope) * run.experiment.seeds.get(run.profile, 1)
    if absent:
        return reasons.absent(who, next(iter(absent.values())), len(absent), expected)
    measured = len(run.attempted(who, scope))
    if run.required(who) and measured < expected:
        return reasons.unmeasured(who, measured, expected)
    return ""


def _ours_failed(run: Run, compared: list[Compared]) -> str:
    """Where ours raised, or gave no value of a metric that the claim reads."""
    for condition in compared:
        metric = condition.stat.metric if condition.stat.of == OURS else ""
        gaps = run.unfinished(OURS, metric, condition.scope)
        if gaps:
            total = len(run.attempted(OURS, condition.scope))
            return reasons.ours_failed(gaps, total)
    return ""


def _raised(run: Run, who: str, condition: Compared) -> tuple[dict[_Cell, str], int]:
    gaps = run.unfinished(who, condition.stat.metric, condition.scope)
    return gaps, len(run.attempted(who, condition.scope))


def _too_few_shared(run: Run, condition: Compared) -> str:
    told = ""
    for who in condition.who:
        gaps, total = _raised(run, who, condition)
        if gaps:
            told = reasons.peer_raised(who, gaps, total)
            break
    return f"{reasons.few_units(condition.found.units, run.experiment.unit)} {told}".strip()


def _fragile(run: Run, counted: list[Compared]) -> str:
    """The survivors' rule: a required peer that raised in more than 20 % of its cells."""
    for condition in counted:
        for who in (condition.stat.of, *condition.stat.over):
            if who == OURS or not run.required(who):
                continue
            gaps, total = _raised(run, who, condition)
            if total and len(gaps) > MAX_RAISED * total:
                return reasons.peer_raised(who, gaps, total)
    return ""


def _wholly_better(run: Run, claim: Claim, counted: list[Compared]) -> bool:
    """Whether ours beats every peer, by the whole interval, on each metric of the claim.

    A condition on what has no better direction (a band, a function of the table), or on what no
    peer reports, must be met instead.
    """
    peers = {name for c in counted for name in c.who if name != OURS}
    seen = False
    for condition in counted:
        stat = condition.stat
        better = "neither" if stat.fn is not None else run.experiment.metric(stat.metric).better
        rivals = [p for p in sorted(peers) if np.isfinite(run.table.value(stat.metric, p)).any()]
        if better == "neither" or not rivals:
            if condition.status != "met":
                return False
            continue
        for rival in rivals:
            if condition.peer is not None and rival != condition.peer and rival in stat.over:
                continue
            seen = True
            if not _beats(run, condition, rival, better):
                return False
    return seen


def _beats(run: Run, condition: Compared, rival: str, better: str) -> bool:
    """Whether the whole interval of ours against a rival lies on the better side."""
    stat = condition.stat
    own = condition.peer == rival and stat.of == OURS and not condition.condition.every
    found, neutral = condition.found, 1.0 if stat.form == "ratio" else 0.0
    if not own:
        plain = Stat(stat.metric, OURS, (rival,), "difference", where=stat.where)
        counts = is_count(run.experiment.metric(stat.metric))
        found, neutral = estimate(run.table, plain, rival, counts=counts), 0.0
    if found.low is None or found.high is None:
        return False
    return found.high < neutral if better == "lower" else found.low > neutral


# Ablations -------------------------------------------------------------------------------------


def _ablate(run: Run, claim: Claim, ablation: Ablation) -> AblationFound:
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
            found, broken = _every(run.table, alone, peer, condition)
            if broken:
                return True
            seen = False if found.units and not found.problem else seen
    return seen


# JSON ------------------------------------------------------------------------------------------


def _conditions_json(run: Run, compared: list[Compared]) -> list[dict[str, Any]]:
    tightest: dict[int, Compared] = {}
    for c in compared:
        held = tightest.get(c.index)
        if math.isfinite(c.slack) and (held is None or c.slack < held.slack):
            tightest[c.index] = c
    return [_condition_json(run, c, tightest.get(c.index) is c) for c in compared]


def _condition_json(run: Run, compared: Compared, tightest: bool) -> dict[str, Any]:
    stat, found = compared.stat, compared.found
    metric = None if stat.fn is not None else run.experiment.metric(stat.metric)
    return {
        "condition": compared.index,
        "metric": reasons.metric_name(stat),
        "unit": metric.unit if metric else "",
        "better": metric.better if metric else "neither",
        "form": "fn" if metric is None else stat.form,
        "pool": "" if metric is None or stat.form == "slope" else effective_pool(stat),
        "of": stat.of,
        "over": compared.peer,
        "along": stat.along,
        "at_most": compared.condition.at_most,
        "at_least": compared.condition.at_least,
        "every": compared.condition.every,
        "estimate": found.value,
        "low": found.low,
        "high": found.high,
        "interval": found.interval,
        "units": found.units,
        "status": compared.status,
        "tightest": tightest,
    }


def _ablation_json(found: AblationFound) -> dict[str, Any]:
    return {
        "name": found.ablation.name,
        "metric": found.ablation.metric,
        "expect": found.ablation.expect,
        "margin": found.ablation.margin,
        "ratio": found.ratio.value,
        "low": found.ratio.low,
        "high": found.ratio.high,
        "hurts": found.hurts,
    }


def _levels(
    run: Run, claim: Claim, names: list[str], scope: frozenset[str]
) -> dict[str, dict[str, dict[str, float | None]]]:
    """Each contender's mean of each metric of the claim, on the cells that all finished.

    Those who finished no cell are left out, and so do optional peers and ablations take no cell
    from the others: their own figures are over the shared cells that they finished too.
    """
    metrics = [c.stat.metric for c in claim.conditions] + [a.metric for a in claim.ablations]
    ablations = {a.name for a in claim.ablations}
    levels: dict[str, dict[str, dict[str, float | None]]] = {name: {} for name in names}
    for metric in dict.fromkeys(filter(None, metrics)):
        inside = run.table.where(lambda case: case.name in scope)
        finished = [n for n in names if np.isfinite(inside.value(metric, n)).any()]
        needed = [n for n in finished if run.required(n) and n not in ablations]
        for name in finished:
            shared = inside.finished(metric, [*needed, name])
            counts = is_count(run.experiment.metric(metric))
            found = estimate(shared, Stat(metric, name), counts=counts)
            levels[name][metric] = {
                "estimate": found.value, "low": found.low, "high": found.high,
            }  # fmt: skip
    return {name: found for name, found in levels.items() if found}


def _absent_json(run: Run, names: list[str], scope: frozenset[str]) -> list[dict[str, str]]:
    """What was missing, once each; what a case needs is missing for everyone: no contender."""
    found: dict[tuple[str, str, str, str], None] = {}
    cases = {case.name: case for case in run.cases}
    for who in names:
        for row in run.cells(run.absent, who, scope).values():
            of_case = _need_name(cases[row.case].needs, row)
            own = run.contenders[who].needs if who in run.contenders else ()
            name = of_case or _need_name(own, row) or ""
            found[("" if of_case else who, row.kind, name, row.reason)] = None
        if run.rows and not any(who in by for by in (run.ok, run.failed, run.absent)):
            found[who, "", "", "not measured"] = None
    return [
        {"contender": who, "kind": kind, "name": name, "hint": hint}
        for who, kind, name, hint in found
    ]


def _need_name(needs: Iterable[Any], row: Row) -> str:
    return next((n.name for n in needs if n.kind == row.kind and n.hint == row.reason), "")


def _errors_json(run: Run, names: list[str], scope: frozenset[str]) -> list[dict[str, Any]]:
    return [
        {
            "contender": who,
            "case": row.case,
            "seed": row.seed,
            "kind": row.kind,
            "reason": row.reason,
        }
        for who in names
        for row in run.cells(run.failed, who, scope).values()
    ]
