"""What a claim's conditions measure: the rows arranged, and each condition against each peer."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from armillary.evidence import reasons
from armillary.evidence.shapes import (
    OURS,
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
    estimate,
    is_count,
    survivors,
)
from armillary.evidence.table import Table

Status = Literal["met", "missed", "unclear", "not run", "none"]

#: A bound is not missed by rounding: 0.1 + 0.2 is not more than 0.3.
ROUNDING = 1e-12

#: A case's name and a seed.
CellKey = tuple[str, int]


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
    ok: dict[str, dict[CellKey, Row]]
    failed: dict[str, dict[CellKey, Row]]
    absent: dict[str, dict[CellKey, Row]]

    @classmethod
    def of(cls, experiment: Experiment, rows: Sequence[Row], profile: ProfileName) -> Run:
        cases = tuple(experiment.cases.get(profile, ()))
        known = {case.name for case in cases}
        mine = tuple(
            row
            for row in rows
            if row.experiment == experiment.id and row.profile == profile and row.case in known
        )
        by: dict[str, dict[str, dict[CellKey, Row]]] = {"ok": {}, "failed": {}, "not run": {}}
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
        self, of: dict[str, dict[CellKey, Row]], who: str, scope: frozenset[str]
    ) -> dict[CellKey, Row]:
        """The cells of a contender within a scope, from ``ok``, ``failed`` or ``absent``."""
        return {cell: row for cell, row in of.get(who, {}).items() if cell[0] in scope}

    def unfinished(self, who: str, metric: str, scope: frozenset[str]) -> dict[CellKey, str]:
        """Attempted cells that gave no value of the metric, each with the reason."""
        raised = self.cells(self.failed, who, scope)
        found = {cell: reasons.failure(row) for cell, row in raised.items()}
        if metric:
            for cell, row in self.cells(self.ok, who, scope).items():
                if metric not in row.metrics:
                    found.setdefault(cell, f"it gave no {metric}")
        return found

    def attempted(self, who: str, scope: frozenset[str]) -> set[CellKey]:
        return {*self.cells(self.ok, who, scope), *self.cells(self.failed, who, scope)}

    def units(self, cells: Iterable[CellKey]) -> int:
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


def compare(run: Run, claim: Claim) -> list[Compared]:
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
        found, broken = worst_cell(run.table, stat, peer, condition)
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
    over, under = _excess(np.array([found.low, found.high]), condition).T
    if (over <= 0).all() and (under <= 0).all():
        return "met"
    return "missed" if (over > 0).all() or (under > 0).all() else "unclear"


def _excess(values: NDArray[np.float64], condition: Condition) -> NDArray[np.float64]:
    """(C, 2) how far values lie over ``at_most`` and under ``at_least``; rounding is forgiven."""
    sides = []
    for sign, bound in ((1.0, condition.at_most), (-1.0, condition.at_least)):
        if bound is None:
            sides.append(np.full(len(values), -math.inf))
        else:
            sides.append(sign * (values - bound) - ROUNDING * abs(bound))
    return np.column_stack(sides)


def worst_cell(
    table: Table, stat: Stat, peer: str | None, condition: Condition
) -> tuple[Estimate, str]:
    """The worst single cell, and in words the first cell that breaks the condition."""
    cells = survivors(table, stat)
    if not len(cells):
        return Estimate(None, problem="no cell was finished by all who are compared"), ""
    values, units = cell_values(cells, stat, peer), cells.n_units
    excess = _excess(values, condition).max(axis=1)
    broken = np.flatnonzero(excess > 0)
    told = reasons.cell(cells, int(broken[0]), values, len(broken)) if len(broken) else ""
    if np.isnan(values).any() and not told:
        at = int(np.flatnonzero(np.isnan(values))[0])
        problem = f"the statistic has no value in {reasons.place(cells, at)}"
        return Estimate(None, units=units, problem=problem), ""
    worst = float(values[int(np.nanargmax(excess))])
    value = worst if math.isfinite(worst) else None
    return Estimate(value, units=units), told
