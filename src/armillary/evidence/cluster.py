"""Untimed groups as tasks of a Ray cluster.

A task measures one group on its node exactly as a local run would: in a process of its own, with
the same isolation, limits and kinds of failure, and gives all rows of the group at once. Only the
run that asked writes to the store, so a task that Ray tries again can leave no second row. A node
must have the same code of the method and the same versions of the packages that matter; what it
lacks, and a task that Ray has lost three times, is ``not run`` and is measured by the next run.
"""

from __future__ import annotations

import collections
import dataclasses
import importlib
import os
import re
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from armillary import catalog
from armillary.errors import require
from armillary.evidence import environment, own
from armillary.evidence.inputs import Inputs
from armillary.evidence.schedule import Group, Trial, plan
from armillary.evidence.shapes import Experiment, ProfileName, Row
from armillary.evidence.store import Store

LOCAL = "local"

#: How often Ray tries a task again whose node or worker it has lost.
RETRIES = 2

_ADDRESS = re.compile(r"(?:ray://)?(?P<host>[^\s/:]+|\[[0-9a-fA-F:]+\]):(?P<port>\d{1,5})")
_CONNECT_SECONDS = 10
_LOCAL_OBJECTS = 128 * 2**20


@dataclasses.dataclass(frozen=True)
class Measured:
    """What a task has found.

    Attributes:
        rows: those of its group.
        seconds: how long the group took, or None if it was not measured whole.
    """

    rows: tuple[Row, ...]
    seconds: float | None


class Cluster:
    """A connection to a Ray cluster, or a cluster of this machine's own.

    Args:
        address: ``local``, ``auto``, ``HOST:PORT`` or ``ray://HOST:PORT``.
        cores: of a local cluster: how many tasks run at once.

    Raises:
        MissingExtra: Ray is not installed.
        ValueError: the address is not understood, or nothing answers there.
    """

    def __init__(self, address: str, cores: int) -> None:
        check(address)
        self._ray: Any = require("ray", what="--ray", extra="ray")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        self._joined = self._ray.is_initialized()
        if not self._joined:
            self._start(address, cores)
        self._task = self._ray.remote(num_cpus=1, max_retries=RETRIES)(measure_group)

    def _start(self, address: str, cores: int) -> None:
        quiet: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
        if address == LOCAL:
            quiet |= {"num_cpus": cores, "object_store_memory": _LOCAL_OBJECTS}
            quiet |= {"include_dashboard": False}
        try:
            self._ray.init(address=address, **quiet)
        except Exception as error:  # Ray raises what it likes
            text = " ".join(str(error).split())[:200]
            raise ValueError(f"--ray {address!r}: cannot use this cluster: {text}") from error

    def close(self) -> None:
        """Leave the cluster; one of this machine's own ends. May be called twice."""
        if not self._joined and self._ray.is_initialized():
            self._ray.shutdown()

    def measure(
        self, groups: Sequence[Group], modules: Mapping[str, str], inputs: Inputs
    ) -> Iterator[tuple[Group, Measured]]:
        """Measure groups in any order; gives each with its rows when it is done."""
        code: dict[tuple[str, str], str] = {}
        waiting = collections.deque(groups)
        running: dict[Any, Group] = {}
        window = 2 * max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        try:
            while waiting or running:
                while waiting and len(running) < window:
                    group = waiting.popleft()
                    trial = group.trial
                    module, key = modules[trial.method], (trial.method, trial.experiment.id)
                    if key not in code:
                        code[key] = code_of(module, trial.experiment.id, inputs)
                    running[self._task.remote(_job(group, module, inputs, code[key]))] = group
                done, _ = self._ray.wait(list(running), timeout=1.0)
                for reference in done:
                    group = running.pop(reference)
                    yield group, self._result(reference, group)
        finally:
            for reference in running:
                self._ray.cancel(reference, force=True)

    def _result(self, reference: Any, group: Group) -> Measured:
        """A task's rows; where Ray has lost it, rows that say so."""
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None) or error
            text = " ".join(str(cause).split())[:200]
            reason = f"its Ray task was lost ({type(cause).__name__}: {text}); run again"
            return Measured(_not_run(group, reason), None)


def check(address: str) -> None:
    """Refuse an address that is not understood or where nothing answers.

    Raises:
        ValueError: with the forms that are understood.
    """
    if address in (LOCAL, "auto"):
        return
    found = _ADDRESS.fullmatch(address)
    if found is None or not 0 < int(found["port"]) < 65536:
        raise ValueError(f"--ray {address!r}: give local, auto, HOST:PORT or ray://HOST:PORT")
    try:
        host = found["host"].strip("[]")
        socket.create_connection((host, int(found["port"])), _CONNECT_SECONDS).close()
    except OSError as error:
        raise ValueError(f"--ray {address!r}: nothing answers there ({error})") from None


def code_of(module: str, experiment: str, inputs: Inputs) -> str:
    """A digest of the code that an experiment's rows depend on, as this machine has it."""
    package = module.removesuffix(".evidence")
    card = importlib.import_module(f"{package}.card").CARD
    digest = environment.code_digest(catalog.Method(card, package))
    return f"{digest} {own.digest(inputs)}" if experiment.startswith(own.PREFIX) else digest


def _not_run(group: Group, reason: str) -> tuple[Row, ...]:
    return tuple(
        group.row(name, status="not run", kind="ray", reason=reason) for name in group.contenders
    )


def _job(group: Group, module: str, inputs: Inputs, code: str) -> dict[str, Any]:
    trial = group.trial
    return {
        "path": [entry or os.getcwd() for entry in sys.path],
        "module": module,
        "method": trial.method,
        "experiment": trial.experiment.id,
        "profile": trial.profile,
        "fingerprint": trial.fingerprint,
        "case": group.case,
        "seed": group.seed,
        "contenders": group.contenders,
        "inputs": inputs,
        "code": code,
        "versions": environment.versions(trial.experiment.packages),
    }


# ---- on the node -------------------------------------------------------------------------------


def measure_group(job: Mapping[str, Any]) -> Measured:
    """Measure one group on this node; see the module's docstring."""
    from armillary.evidence.execution import Execution

    sys.path += [p for p in job["path"] if p not in sys.path and Path(p).exists()]
    inputs: Inputs = job["inputs"]
    experiment = _experiment(job, inputs)
    trial = Trial(
        job["method"], experiment, job["profile"], job["fingerprint"], (job["seed"],)
    )  # fmt: skip
    asked = Group(trial, job["case"], job["seed"], tuple(job["contenders"]))
    if different := _differences(job, experiment, inputs):
        reason = f"a node of the cluster has other {different}: install what this machine has"
        return Measured(_not_run(asked, reason), None)
    able, rows = _able(asked, inputs)
    found = Collected(list(rows))
    if able is not None:
        with Execution(
            cast(Store, found), {job["method"]: job["module"]}, inputs, workers=1
        ) as execution:
            for _ in execution.run([able]):
                pass
    mine = [r for r in found.rows if r.case == asked.case and r.contender in asked.contenders]
    return Measured(tuple(mine), found.seconds)


def _experiment(job: Mapping[str, Any], inputs: Inputs) -> Experiment:
    module, name = job["module"], job["experiment"]
    shipped = importlib.import_module(module).EXPERIMENTS
    if not name.startswith(own.PREFIX):
        return next(e for e in shipped if e.id == name)
    chosen = [e for e in shipped if own.PREFIX + e.id == name]
    profile = cast(ProfileName, job["profile"])
    return next(e for e in own.experiments(module, chosen, profile, inputs) if e.id == name)


def _differences(job: Mapping[str, Any], experiment: Experiment, inputs: Inputs) -> str:
    """What this node has otherwise than the machine that asked, or nothing."""
    if code_of(job["module"], experiment.id, inputs) != job["code"]:
        return "code of this method"
    here = environment.versions(experiment.packages)
    differ = [name for name, version in job["versions"].items() if here.get(name) != version]
    return f"versions of {', '.join(differ)}" if differ else ""


def _able(asked: Group, inputs: Inputs) -> tuple[Group | None, list[Row]]:
    """What of a group this node can do, and rows of what it lacks."""
    found = plan([asked.trial], None, inputs)
    mine = [g for g in found.groups if g.case == asked.case]
    names = [n for g in mine for n in g.contenders if n in asked.contenders]
    able = dataclasses.replace(asked, contenders=tuple(names)) if names else None
    return able, [row for _, row in found.absent]


class Collected:
    """Takes rows in the place of a store, which is not reached from here."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        self.seconds: float | None = None

    def put(self, fingerprint: str, rows: Sequence[Row]) -> None:
        """Keep rows."""
        del fingerprint
        self.rows += rows

    def put_seconds(self, *described: Any) -> None:
        """Keep how long the group took: the last argument."""
        self.seconds = float(described[-1])
