"""The process in which setups and contenders run: it may die, and the run goes on.

The parent writes jobs, one JSON object a line, to one pipe and reads events from another::

    {"do": "group", "module": …, "experiment": …, "case": …, "seed": …, "profile": …, "threads": …,
     "contenders": […], "timing": {"metrics": […], "warmups": n, "repeats": n} | null,
     "environment": {…}}
    {"do": "build", "module": …, "experiment": …, "artefact": …, "slug": …,
     "scratch": …}

Events: ``ready`` (the setup's seconds), ``begin`` (a contender starts), ``row`` (a measurement),
``refused`` (the setup raised), ``built``, ``done``. When the parent is gone, so is this process,
with all that it started.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import math
import os
import queue
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from armillary.evidence import own
from armillary.evidence.shapes import Artefact, Case, Cell, Contender, Experiment, ProfileName

Emit = Callable[..., None]

_MESSAGE_LENGTH = 10_000


def main(jobs: int, events: int) -> None:
    """Do jobs until the parent closes the pipe.

    Args:
        jobs: descriptor to read jobs from.
        events: descriptor to write events to.
    """
    for descriptor in (jobs, events):
        os.set_inheritable(descriptor, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    _prepare_to_crash()
    waiting: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(jobs, waiting), daemon=True).start()

    def emit(event: str, **fields: Any) -> None:
        line = json.dumps({"event": event, **fields}).encode() + b"\n"
        while line:
            line = line[os.write(events, line) :]

    while True:
        job = waiting.get()
        os.environ.update(job.get("environment", {}))
        if job["do"] == "group":
            run_group(job, emit)
        else:
            _build(job, emit)
        emit("done")


def _prepare_to_crash() -> None:
    """Say where a crash happened, and leave no core file behind."""
    import faulthandler
    import resource

    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def _listen(descriptor: int, waiting: queue.SimpleQueue[dict[str, Any]]) -> None:
    """Pass jobs on; at the end of the pipe end this process and its children."""
    with contextlib.suppress(OSError), os.fdopen(descriptor, "rb") as pipe:
        for line in pipe:
            waiting.put(json.loads(line))
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


def run_group(job: Mapping[str, Any], emit: Emit) -> None:
    """Set one (case, seed) up and let every contender of the job do the same work."""
    try:
        experiment = _experiment(job["module"], job["experiment"], job["profile"])
        case = _case(experiment, job["profile"], job["case"])
        cell = Cell(case, job["seed"], job["profile"], job["threads"])
        by_name = {c.name: c for c in experiment.contenders}
        contenders = [by_name[name] for name in job["contenders"]]
        seed_everything(cell.seed)
        start = time.perf_counter()
        work = experiment.setup(cell)
        setup_seconds = time.perf_counter() - start
    except BaseException as error:
        emit("refused", **describe(error))
        return
    emit("ready", seconds=setup_seconds)
    metrics = frozenset(m.name for m in experiment.metrics)
    if job["timing"] is None:
        for contender in contenders:
            emit("begin", contender=contender.name)
            emit(
                "row", contender=contender.name, repeat=0, **measure(contender, work, cell, metrics)
            )
    else:
        _time_group(contenders, work, cell, job["timing"], metrics, emit)


def measure(contender: Contender, work: Any, cell: Cell, allowed: frozenset[str]) -> dict[str, Any]:
    """Run a contender once: its metrics and seconds, or how it failed.

    Returns:
        ``{"status", "kind", "reason", "metrics", "seconds"}``; non-finite metrics are a failure of
        kind ``nan`` or ``inf``, metrics that the experiment does not declare one of kind
        ``metrics``.
    """
    seed_everything(cell.seed)
    start = time.perf_counter()
    try:
        answer = contender.run(work, cell)
        seconds = time.perf_counter() - start
        values = {str(name): float(value) for name, value in dict(answer).items()}
    except BaseException as error:
        return _failure(time.perf_counter() - start, **describe(error))
    if strangers := sorted(set(values) - allowed):
        return _failure(seconds, "metrics", f"reports {strangers}, which the experiment lacks")
    for name, value in values.items():
        if not math.isfinite(value):
            kind = "nan" if math.isnan(value) else "inf"
            return _failure(seconds, kind, f"metric {name!r} is {value}")
    return {"status": "ok", "kind": "", "reason": "", "metrics": values, "seconds": seconds}


def _failure(seconds: float, kind: str, reason: str) -> dict[str, Any]:
    return {"status": "failed", "kind": kind, "reason": reason, "metrics": {}, "seconds": seconds}


def _time_group(
    contenders: Sequence[Contender],
    work: Any,
    cell: Cell,
    timing: Mapping[str, Any],
    metrics: frozenset[str],
    emit: Emit,
) -> None:
    """Warm every contender up, then let them alternate: A B, B A, A B, …

    The first call of each is kept as ``first_seconds``, apart from the repeats. A contender that
    fails once has failed the cell and is not called again.
    """
    allowed = metrics | set(timing["metrics"]) | {FIRST_SECONDS}
    first: dict[str, float] = {}
    alive = list(contenders)
    # A repeat is -1 while warming up.
    rounds = [-1] * timing["warmups"] + list(range(timing["repeats"]))
    for turn, repeat in enumerate(rounds):
        for contender in alive[:: -1 if turn % 2 else 1]:
            emit("begin", contender=contender.name)
            row = _timed(contender, work, cell, allowed)
            first.setdefault(contender.name, row["seconds"])
            if row["status"] != "ok":
                alive.remove(contender)
                emit("row", contender=contender.name, repeat=max(repeat, 0), **row)
            elif repeat >= 0:
                if "seconds" in timing["metrics"]:
                    row["metrics"].setdefault("seconds", row["seconds"])
                if repeat == 0:
                    row["metrics"].setdefault(FIRST_SECONDS, first[contender.name])
                emit("row", contender=contender.name, repeat=repeat, **row)


#: The metric that holds a timed contender's first call: what a compiler or a cold cache costs.
FIRST_SECONDS = "first_seconds"


def _timed(contender: Contender, work: Any, cell: Cell, allowed: frozenset[str]) -> dict[str, Any]:
    """One call with the garbage of earlier ones collected and the collector held back."""
    gc.collect()
    gc.disable()
    try:
        return measure(contender, work, cell, allowed)
    finally:
        gc.enable()


def _build(job: Mapping[str, Any], emit: Emit) -> None:
    from armillary.evidence import artefacts

    try:
        experiment = _experiment(job["module"], job["experiment"].removeprefix(own.PREFIX))
        artefact: Artefact = next(a for a in experiment.prepare if a.name == job["artefact"])
        seed_everything(0)
        emit("built", seconds=artefacts.build(job["slug"], artefact, Path(job["scratch"])))
    except BaseException as error:
        emit("refused", **describe(error))


def seed_everything(seed: int) -> None:
    """Seed the global generators that exist, for peers that know no other: a cell's outcome must
    not depend on what ran before it in the same process."""
    random.seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None and hasattr(numpy, "random"):
        numpy.random.seed(seed % 2**32)
    if (torch := sys.modules.get("torch")) is not None and hasattr(torch, "manual_seed"):
        torch.manual_seed(seed)


def describe(error: BaseException) -> dict[str, str]:
    """An error as kind (its type) and reason (its message and where it was raised)."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
    try:
        text = str(error)[:_MESSAGE_LENGTH]
    except Exception as second:  # an exception whose own text fails
        text = f"its message raised {type(second).__name__}"
    return {"kind": type(error).__name__, "reason": f"{text or 'no message'}{where}"}


def _experiment(module: str, name: str, profile: ProfileName = "smoke") -> Experiment:
    if name.startswith(own.PREFIX):
        return own.find(module, name, profile)
    return next(e for e in importlib.import_module(module).EXPERIMENTS if e.id == name)


def _case(experiment: Experiment, profile: str, name: str) -> Case:
    return next(c for c in experiment.cases[profile] if c.name == name)
