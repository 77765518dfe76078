"""From measurements to verdicts: `judge` reads an experiment's rows and says what holds.

A pure function of the rows: what was absent, busy or broken is told by the rows themselves. The
rules, in their order, are those of the page "How verdicts are computed"; the statistics are in
`armillary.evidence.statistics`, the sentences in `armillary.evidence.reasons`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np

from armillary.evidence import reasons
from armillary.evidence.ablations import AblationFound, ablate
from armillary.evidence.comparisons import CellKey, Compared, Run, compare
from armillary.evidence.shapes import (
    OURS,
    PROFILES,
    Claim,
    Experiment,
    Need,
    ProfileName,
    Row,
    Stat,
)
from armillary.evidence.statistics import (
    MIN_UNITS,
    effective_pool,
    estimate,
    is_count,
)
from armillary.output.files import finite

Verdict = Literal["none", "not run", "fails", "holds", "partly", "unclear"]

#: A required peer that raised in a larger share of its cells lets a claim hold partly at most.
MAX_RAISED = 0.20


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
    with np.errstate(all="ignore"):
        return [finite({**_judged(run, claim), **shared}) for claim in experiment.claims]


def _judged(run: Run, claim: Claim) -> dict[str, Any]:
    compared = compare(run, claim)
    ablations = [ablate(run, claim, ablation) for ablation in claim.ablations]
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


# The rules ------------------------------------------------------------------------------------


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
        short = reasons.short_of(min(missed or unclear, key=lambda c: c.slack))
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
    expected = len(scope) * run.experiment.seeds.get(run.profile, 0)
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


def _raised(run: Run, who: str, condition: Compared) -> tuple[dict[CellKey, str], int]:
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
    """Whether the whole interval of ours against a rival lies on the better side.

    The condition's own interval where it compares an average, or the worst case, with this rival;
    else that of the difference: a best case, or a ratio to a negative mean, does not say who is
    better.
    """
    stat = condition.stat
    own = condition.peer == rival and stat.of == OURS and not condition.condition.every
    worst = "max" if better == "lower" else "min"
    own = own and effective_pool(stat) in ("mean", "geomean", "median", worst)
    found, neutral = condition.found, 1.0 if stat.form == "ratio" else 0.0
    if not own:
        plain = Stat(stat.metric, OURS, (rival,), "difference", where=stat.where)
        counts = is_count(run.experiment.metric(stat.metric))
        found, neutral = estimate(run.table, plain, rival, counts=counts), 0.0
    if found.low is None or found.high is None:
        return False
    return found.high < neutral if better == "lower" else found.low > neutral


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
    found: dict[tuple[str, str, str, str], str] = {}
    cases = {case.name: case for case in run.cases}
    for who in names:
        for row in run.cells(run.absent, who, scope).values():
            of_case = _need(cases[row.case].needs, row)
            own = run.contenders[who].needs if who in run.contenders else ()
            need = of_case or _need(own, row)
            name, hint = (need.name, need.hint) if need else ("", row.reason)
            key = ("" if of_case else who, row.kind, name)
            # The load of a busy machine differs from cell to cell: the first tells enough.
            found.setdefault((*key, "" if row.kind == "busy" else hint), hint)
        if run.rows and not any(who in by for by in (run.ok, run.failed, run.absent)):
            found[who, "", "", ""] = "not measured"
    return [
        {"contender": who, "kind": kind, "name": name, "hint": hint}
        for (who, kind, name, _), hint in found.items()
    ]


def _need(needs: Iterable[Need], row: Row) -> Need | None:
    """The need that a row says is not met: its reason ends with the need's hint."""
    return next((n for n in needs if n.kind == row.kind and row.reason.endswith(n.hint)), None)


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
