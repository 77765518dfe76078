"""What is to be measured: cells that are not stored yet, by group, and what is missing for them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Sequence

from armillary.evidence.inputs import Inputs
from armillary.evidence.own import PREFIX
from armillary.evidence.shapes import Case, Contender, Experiment, Need, Row, Timing
from armillary.evidence.store import Store


@dataclasses.dataclass(frozen=True)
class Trial:
    """An experiment with what identifies its rows.

    Attributes:
        method: the slug.
        experiment: the experiment.
        profile: the profile.
        fingerprint: what its rows depend on.
        seeds: the seeds of each case.
    """

    method: str
    experiment: Experiment
    profile: str
    fingerprint: str
    seeds: tuple[int, ...]

    @property
    def own(self) -> bool:
        """Whether it measures what the user brought, not what the method states."""
        return self.experiment.id.startswith(PREFIX)

    @property
    def cases(self) -> Sequence[Case]:
        return self.experiment.cases.get(self.profile, ())

    def row(self, case: str, seed: int, contender: str, **fields) -> Row:
        """A row of this trial."""
        return Row(self.method, self.experiment.id, self.profile, case, seed, contender, **fields)


@dataclasses.dataclass(frozen=True)
class Group:
    """One (case, seed) and the contenders that are still to do its work."""

    trial: Trial
    case: str
    seed: int
    contenders: tuple[str, ...]

    @property
    def timing(self) -> Timing | None:
        return self.trial.experiment.timed

    def row(self, contender: str, **fields) -> Row:
        """A row of this group."""
        return self.trial.row(self.case, self.seed, contender, **fields)


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a run will do.

    Attributes:
        groups: what is to be measured, untimed work before timed work.
        absent: ``not run`` rows of what lacks something.
        missing: each need that is not met, with who needs it.
        stored: how many measurements are there already.
    """

    groups: tuple[Group, ...]
    absent: tuple[tuple[Trial, Row], ...]
    missing: tuple[tuple[str, Need], ...]
    stored: int


def plan(trials: Iterable[Trial], store: Store | None, inputs: Inputs) -> Plan:
    """Compare what trials ask for with what is stored and what is there.

    Args:
        trials: what to measure.
        store: what has been measured; None: nothing.
        inputs: what the user gave.
    """
    groups: list[Group] = []
    absent: list[tuple[Trial, Row]] = []
    missing: dict[tuple[str, Need], None] = {}
    stored = 0
    for trial in trials:
        finished = finished_cells(trial, store)
        lacking = Absence(inputs)
        for case, seed in itertools.product(trial.cases, trial.seeds):
            wanted: list[str] = []
            done = 0
            for contender in trial.experiment.contenders:
                if (case.name, seed, contender.name) in finished:
                    done += 1
                elif need := lacking(case, contender):
                    missing[f"{trial.experiment.id}: {contender.name}", need] = None
                    absent.append((trial, _absent(trial, case, seed, contender, need)))
                else:
                    wanted.append(contender.name)
            if wanted and trial.experiment.timed is not None and done:
                # Times compare only within one process: the group is measured whole.
                wanted, done = _able(trial, case, lacking), 0
            stored += done
            if wanted:
                groups.append(Group(trial, case.name, seed, tuple(wanted)))
    groups.sort(key=lambda group: group.timing is not None)
    return Plan(tuple(groups), tuple(absent), tuple(missing), stored)


class Absence:
    """Remembers which needs are not met."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self._known: dict[Need, bool] = {}

    def __call__(self, case: Case, contender: Contender) -> Need | None:
        """The first need of a case or contender that is not met, or None."""
        for need in (*case.needs, *contender.needs):
            if need not in self._known:
                self._known[need] = self._inputs.has(need)
            if not self._known[need]:
                return need
        return None


def _able(trial: Trial, case: Case, lacking: Callable) -> list[str]:
    return [c.name for c in trial.experiment.contenders if not lacking(case, c)]


def _absent(trial: Trial, case: Case, seed: int, contender: Contender, need: Need) -> Row:
    reason = f"{need.name} is absent: {need.hint}"
    return trial.row(
        case.name, seed, contender.name, status="not run", kind=need.kind, reason=reason
    )


def finished_cells(trial: Trial, store: Store | None) -> set[tuple[str, int, str]]:
    """The (case, seed, contender) of a trial that need not be measured again.

    A failure is a result too: it stays until code, versions or machine change.
    """
    if store is None:
        return set()
    timing = trial.experiment.timed
    repeats = timing.repeats if timing is not None else 1
    counted: dict[tuple[str, int, str], int] = {}
    for row in store.rows(trial.fingerprint, trial.experiment.id, trial.seeds):
        cell = (row.case, row.seed, row.contender)
        if row.status == "failed":
            counted[cell] = repeats
        elif row.status == "ok":
            counted[cell] = counted.get(cell, 0) + 1
    return {cell for cell, count in counted.items() if count >= repeats}
