"""Measuring a plan's groups: untimed ones in worker processes, timed ones alone on the machine."""

from __future__ import annotations

import collections
import dataclasses
import json
import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from armillary.evidence import artefacts, lock, process
from armillary.evidence.inputs import Inputs
from armillary.evidence.process import Worker
from armillary.evidence.schedule import Group, Trial, finished_cells
from armillary.evidence.scrub import Scrubber
from armillary.evidence.shapes import Artefact, Row
from armillary.evidence.store import Store

if TYPE_CHECKING:
    from armillary.evidence.cluster import Cluster

_TICK = 0.25


@dataclasses.dataclass
class _Active:
    """A group that a worker is busy with."""

    group: Group
    worker: Worker
    remaining: list[str]
    started: float
    ready: bool = False
    current: str | None = None
    rows: list[Row] = dataclasses.field(default_factory=list)


class Execution:
    """Runs groups and stores what comes of them.

    Use it as a context: leaving it ends every process that it has started.

    Args:
        store: where rows go.
        modules: the evidence module of each method by slug.
        inputs: what the user gave.
        workers: processes for untimed work.
        note: told what a user should know meanwhile.
        cluster: does the untimed work in the place of processes here; it is left before timed work.
    """

    def __init__(
        self,
        store: Store,
        modules: Mapping[str, str],
        inputs: Inputs,
        workers: int = 1,
        note: Callable[[str], None] = lambda _: None,
        cluster: Cluster | None = None,
    ) -> None:
        self._store, self._modules, self._inputs = store, modules, inputs
        self._workers, self._note, self._cluster = workers, note, cluster
        self._scrub = Scrubber(inputs.labels())
        self._alive: list[Worker] = []
        #: Folders of each experiment's artefacts; None: one of them could not be built.
        self._prepared: dict[tuple[str, str], dict[str, str] | None] = {}
        #: Seconds that the artefacts in use took to build, now or earlier.
        self.artefact_seconds = 0.0

    def __enter__(self) -> Execution:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in list(self._alive):
            self._end(worker)
        if self._cluster is not None:
            self._cluster.close()

    def run(self, groups: Sequence[Group]) -> Iterator[Group]:
        """Measure groups, untimed ones first; yields each when its rows are stored."""
        ready: list[Group] = []
        for group in groups:
            if self._prepare(group.trial):
                ready.append(group)
            else:
                yield group
        untimed = [g for g in ready if g.timing is None]
        if self._cluster is None:
            yield from self._untimed(untimed)
        else:
            yield from self._on_cluster(self._cluster, untimed)
            self._cluster.close()  # its idle processes would disturb timed work
        yield from self._timed([g for g in ready if g.timing is not None])

    # ---- artefacts -----------------------------------------------------------------------------

    def _prepare(self, trial: Trial) -> bool:
        """Have the artefacts of a trial ready; if one cannot be built its cells are not run."""
        key = (trial.method, trial.experiment.id)
        if key in self._prepared:
            return self._prepared[key] is not None
        folders: dict[str, str] = {}
        for artefact in trial.experiment.prepare:
            if trial.profile not in artefact.profiles:
                continue
            if problem := self._built(trial, artefact):
                self._refuse(trial, f"artefact {artefact.name!r} could not be built: {problem}")
                self._prepared[key] = None
                return False
            folders[artefact.name] = str(artefacts.folder(trial.method, artefact))
        self._prepared[key] = folders
        return True

    def _built(self, trial: Trial, artefact: Artefact) -> str:
        """Build an artefact if it is not there; gives what went wrong, or an empty text."""
        seconds = artefacts.built_seconds(trial.method, artefact)
        problem = ""
        if seconds is None:
            self._note(f"{trial.experiment.id}: preparing {artefact.name}")
            seconds, problem = self._build(trial, artefact)
        self.artefact_seconds += seconds
        return problem

    def _build(self, trial: Trial, artefact: Artefact) -> tuple[float, str]:
        scratch = artefacts.scratch(trial.method, artefact)
        worker = self._start_worker(1)
        worker.send(
            {
                "do": "build",
                "scratch": str(scratch),
                "module": self._modules[trial.method],
                "experiment": trial.experiment.id,
                "artefact": artefact.name,
                "slug": trial.method,
            }
        )
        start = time.monotonic()
        try:
            while time.monotonic() < start + artefact.max_seconds:
                process.wait([worker], _TICK)
                events = worker.receive()
                if events is None:
                    return 0.0, self._scrub(worker.obituary())
                for event in events:
                    if event["event"] == "built":
                        return float(event["seconds"]), ""
                    if event["event"] == "refused":
                        return 0.0, self._scrub(f"{event['kind']}: {event['reason']}")
            return 0.0, f"it took longer than its limit of {artefact.max_seconds:g} s"
        finally:
            self._end(worker)
            shutil.rmtree(scratch, ignore_errors=True)

    def _refuse(self, trial: Trial, reason: str) -> None:
        """Every cell of a trial that has no measurement is not run, for want of an artefact."""
        rows = [
            trial.row(case.name, seed, c.name, status="not run", kind="artefact", reason=reason)
            for case in trial.cases
            for seed in trial.seeds
            for c in trial.experiment.contenders
        ]
        self._store.put(trial.fingerprint, rows)

    # ---- untimed work --------------------------------------------------------------------------

    def _on_cluster(self, cluster: Cluster, groups: Sequence[Group]) -> Iterator[Group]:
        """Only here do rows of tasks enter the store, one transaction a group."""
        for group, found in cluster.measure(groups, self._modules, self._inputs):
            trial = group.trial
            rows = [dataclasses.replace(row, reason=self._scrub(row.reason)) for row in found.rows]
            self._store.put(trial.fingerprint, rows)
            if found.seconds is not None:
                self._store.put_seconds(
                    trial.fingerprint, trial.method, trial.experiment.id, trial.profile,
                    group.case, group.seed, found.seconds,
                )  # fmt: skip
            yield group

    def _untimed(self, groups: Sequence[Group]) -> Iterator[Group]:
        waiting = collections.deque((group, list(group.contenders)) for group in groups)
        idle: list[Worker] = []
        active: list[_Active] = []
        while waiting or active:
            while waiting and len(active) < self._workers:
                group, remaining = waiting.popleft()
                worker = idle.pop() if idle else self._start_worker(1)
                active.append(self._begin(group, remaining, worker))
            process.wait([a.worker for a in active], _TICK)
            for task in list(active):
                if (alive := self._advance(task)) is None:
                    continue
                active.remove(task)
                if alive:
                    task.worker.trim()
                    idle.append(task.worker)
                if task.remaining:
                    waiting.appendleft((task.group, task.remaining))
                else:
                    self._put_seconds(task.group, task.started)
                    yield task.group
        for worker in idle:
            self._end(worker)

    def _begin(self, group: Group, remaining: list[str], worker: Worker) -> _Active:
        experiment, timing = group.trial.experiment, group.timing
        prepared = self._prepared[group.trial.method, experiment.id]
        worker.send(
            {
                "do": "group",
                "module": self._modules[group.trial.method],
                "experiment": experiment.id,
                "case": group.case,
                "seed": group.seed,
                "profile": group.trial.profile,
                "threads": worker.threads,
                "contenders": remaining,
                "timing": None if timing is None else dataclasses.asdict(timing),
                "environment": {artefacts.ARTEFACTS_VARIABLE: json.dumps(prepared)},
            }
        )
        return _Active(group, worker, list(remaining), time.monotonic())

    def _put_seconds(self, group: Group, started: float) -> None:
        trial = group.trial
        self._store.put_seconds(
            trial.fingerprint, trial.method, trial.experiment.id, trial.profile, group.case,
            group.seed, time.monotonic() - started,
        )  # fmt: skip

    def _advance(self, task: _Active) -> bool | None:
        """Take in what a worker has said.

        Returns:
            None while the group goes on; True when it is over and the worker lives; False when the
            worker is gone (``task.remaining`` then says who is still to run).
        """
        events = task.worker.receive()
        if events is None:
            self._bury(task)
            self._end(task.worker)
            return False
        for event in events:
            if self._take(task, event):
                return True
        # A group that starts again after a death has its whole time again.
        if time.monotonic() > task.started + task.group.trial.experiment.max_seconds:
            self._time_out(task)
            self._end(task.worker)
            return False
        return None

    def _take(self, task: _Active, event: Mapping[str, Any]) -> bool:
        """One event of a group; True if it was the last."""
        what = event["event"]
        if what == "ready":
            task.ready = True
        elif what == "begin":
            task.current = event["contender"]
        elif what == "row":
            task.current = None
            self._record(task, event)
        elif what == "refused":
            self._fail(task, task.remaining, f"setup: {event['kind']}", event["reason"])
        elif what == "done":
            task.remaining = []
            return True
        return False

    def _record(self, task: _Active, event: Mapping[str, Any]) -> None:
        fields = {k: event[k] for k in ("repeat", "status", "kind", "metrics", "seconds")}
        row = task.group.row(event["contender"], reason=self._scrub(event["reason"]), **fields)
        task.rows.append(row)
        if task.group.timing is None:
            self._store.put(task.group.trial.fingerprint, [row])
            task.remaining.remove(row.contender)
        elif row.status == "failed":
            task.remaining.remove(row.contender)

    def _fail(self, task: _Active, who: Sequence[str], kind: str, reason: str) -> None:
        """Store a failure for some of the contenders that remain."""
        rows = [
            task.group.row(name, status="failed", kind=kind, reason=self._scrub(reason))
            for name in who
        ]
        task.rows += rows
        if task.group.timing is None:
            self._store.put(task.group.trial.fingerprint, rows)
        task.remaining = [name for name in task.remaining if name not in who]

    def _bury(self, task: _Active) -> None:
        """The worker died: blame the contender that was running, or the setup."""
        reason = f"its process {task.worker.obituary()}"
        if not task.ready:
            self._fail(task, task.remaining, "setup: died", reason)
        elif task.current is not None:
            self._fail(task, [task.current], "died", reason)
        else:
            self._fail(task, task.remaining, "died", reason)

    def _time_out(self, task: _Active) -> None:
        """Blame the contender that was running, or the setup; the others start afresh."""
        reason = f"past the limit of {task.group.trial.experiment.max_seconds:g} s"
        if task.ready and task.current is not None:
            self._fail(task, [task.current], "timeout", reason)
        else:
            self._fail(task, task.remaining, "setup: timeout", reason)

    # ---- timed work ----------------------------------------------------------------------------

    def _timed(self, groups: Sequence[Group]) -> Iterator[Group]:
        """One group after the other, each when the machine is quiet and nobody else measures."""
        patience, waited = lock.patience(), 0.0
        for group in groups:
            with lock.alone(self._note) as held:
                if self._measured_meanwhile(group):
                    yield group
                    continue
                # Smoke judges nothing: it runs everything once, however busy the machine is.
                regardless = math.isinf(patience) or group.trial.profile == "smoke"
                load = None if regardless else lock.wait_until_quiet(patience)
                if load is None:
                    self._time(group, held)
                else:
                    if patience > 0:  # told once; the others get one look each
                        self._note(
                            f"machine busy ({load:.1f} cores): timed work is left out unless it "
                            "grows quiet"
                        )
                    waited, patience = max(waited, patience), 0.0
                    self._give_up(group, load, waited)
            yield group

    def _measured_meanwhile(self, group: Group) -> bool:
        """Whether another run has stored this group since the plan was made."""
        finished = finished_cells(group.trial, self._store)
        return all((group.case, group.seed, name) in finished for name in group.contenders)

    def _give_up(self, group: Group, load: float, waited: float) -> None:
        reason = (
            f"machine busy: others used {load:.1f} cores after {waited:.0f} s of waiting; "
            "run again when it is quiet"
        )
        rows = [
            group.row(name, status="not run", kind="busy", reason=reason)
            for name in group.contenders
        ]
        self._store.put(group.trial.fingerprint, rows)

    def _time(self, group: Group, held: int) -> None:
        """Measure a timed group; a contender that dies is left out and the others start afresh."""
        assert group.timing is not None
        started = time.monotonic()
        remaining = list(group.contenders)
        failures: list[Row] = []
        rows: list[Row] = []
        while remaining:
            worker = self._start_worker(group.timing.threads, keep=(held,))
            task = self._begin(group, remaining, worker)
            while (alive := self._advance(task)) is None:
                process.wait([worker], _TICK)
            if alive:
                self._end(worker)
            failures += [row for row in task.rows if row.status == "failed"]
            rows = [row for row in task.rows if row.status == "ok"]
            remaining = task.remaining
        failed = {row.contender for row in failures}
        whole = [row for row in rows if row.contender not in failed] + failures
        self._store.put(group.trial.fingerprint, whole, replace_group=True)
        self._put_seconds(group, started)

    # ---- processes -----------------------------------------------------------------------------

    def _start_worker(self, threads: int, keep: Sequence[int] = ()) -> Worker:
        worker = Worker(threads, self._inputs.environment(), keep)
        self._alive.append(worker)
        return worker

    def _end(self, worker: Worker) -> None:
        if worker in self._alive:
            self._alive.remove(worker)
            worker.end()
