"""Processes of one host that share a model: one a rank, on ``torch.distributed`` with gloo.

A server process imports torch and transformers once and forks every rank from there, so that a
group of nine ranks starts in a second or two.
"""

from __future__ import annotations

import contextlib
import datetime
import importlib
import importlib.util
import multiprocessing
import os
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

TRANSPORTS = ("gloo", "shm")
#: What the server of forks imports before the first rank is asked for.
PRELOADED = ["armillary.serving.tbik.preloaded"]


class RankError(RuntimeError):
    """A rank raised, died, or did not finish in time."""


def run_ranks(
    world: int,
    work: Callable[..., Any],
    *arguments: Any,
    transport: str = "shm",
    seconds: float = 600.0,
    threads: int = 1,
    preload: Sequence[str] = PRELOADED,
) -> list[Any]:
    """Run ``work(group, *arguments)`` on every rank of a fresh group of processes.

    Args:
        world: how many ranks; one runs in a process of its own as well.
        work: a function of a module; its first argument is the exchange of its rank.
        arguments: what else it takes; sent to the processes.
        transport: ``shm`` (shared memory) or ``gloo``.
        seconds: limit for the whole run.
        threads: of each rank.
        preload: modules that the first call of a process has imported for all ranks.

    Returns:
        What each rank returned, by rank.

    Raises:
        RankError: with the traceback of the first rank that failed.
        ValueError: no such transport.
    """
    if transport not in TRANSPORTS:
        raise ValueError(f"transport={transport!r}: it must be one of {', '.join(TRANSPORTS)}")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(preload))
    name = (work.__module__, work.__qualname__, work.__code__.co_filename)
    with tempfile.TemporaryDirectory(prefix="armillary-ranks-") as folder, _quiet_main():
        store = str(Path(folder) / "store")
        ends, processes = [], []
        for rank in range(world):
            mine, theirs = context.Pipe(duplex=False)
            job = (name, arguments, rank, world, store, transport, threads, seconds, theirs)
            process = context.Process(target=_rank, args=job, daemon=True)
            process.start()
            theirs.close()
            ends.append(mine)
            processes.append(process)
        try:
            return _collect(ends, processes, seconds)
        finally:
            for process in processes:
                process.join(5)
                if process.is_alive():
                    process.kill()
                    process.join()


@contextlib.contextmanager
def _quiet_main() -> Iterator[None]:
    """Keep a starting process from importing the caller's script: ranks need only ``work``."""
    import sys

    main = sys.modules["__main__"]
    hidden: dict[str, Any] = {}
    for attribute in ("__file__", "__spec__"):
        if hasattr(main, attribute):
            hidden[attribute] = getattr(main, attribute)
    try:
        if "__file__" in hidden:
            del main.__file__
        main.__spec__ = None
        yield
    finally:
        for attribute, value in hidden.items():
            setattr(main, attribute, value)


def _collect(ends: list[Any], processes: list[Any], seconds: float) -> list[Any]:
    from multiprocessing.connection import wait

    limit = time.monotonic() + seconds
    answers: dict[int, Any] = {}
    while len(answers) < len(ends):
        waiting = {end: rank for rank, end in enumerate(ends) if rank not in answers}
        ready = wait(list(waiting), timeout=max(0.0, limit - time.monotonic()))
        if not ready:
            raise RankError(f"ranks {sorted(waiting.values())} did not finish in {seconds:.0f} s")
        for end in ready:
            rank = waiting[end]  # pyright: ignore
            try:
                ok, answers[rank] = end.recv()  # pyright: ignore
            except EOFError:
                processes[rank].join(5)
                code = processes[rank].exitcode
                raise RankError(f"rank {rank} died (exit code {code})") from None
            if not ok:
                kind, text = answers[rank]
                raise _raised(kind, f"rank {rank}: {text}")
    return [answers[rank] for rank in range(len(ends))]


def _raised(kind: str, text: str) -> Exception:
    """The error that a rank raised, of its own type where that is ours or a builtin."""
    from armillary.serving.tbik import hf, plan

    known: Mapping[str, type[Exception]] = {
        "PlanMismatchError": plan.PlanMismatchError,
        "UnsupportedModelError": hf.UnsupportedModelError,
        "ValueError": ValueError, "TypeError": TypeError, "FileNotFoundError": FileNotFoundError,
    }  # fmt: skip
    return known.get(kind, RankError)(text)


def _found(module: str, function: str, file: str) -> Callable[..., Any]:
    """A function by its module's name, or out of its file where no import finds that (a script)."""
    try:
        if module == "__main__":
            raise ModuleNotFoundError(name=module)
        return getattr(importlib.import_module(module), function)
    except ModuleNotFoundError:
        spec = importlib.util.spec_from_file_location("armillary_rank_work", file)
        if spec is None or spec.loader is None:
            raise
        loaded = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded)
        return getattr(loaded, function)


def _rank(
    name: tuple[str, str, str], arguments: tuple[Any, ...], rank: int, world: int, store: str,
    transport: str, threads: int, seconds: float, answer: Any,
) -> None:  # fmt: skip
    try:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        import torch
        import torch.distributed as dist

        from armillary.serving.tbik.dist import Alone, GroupExchange, SharedMemoryExchange

        torch.set_num_threads(threads)
        work = _found(*name)
        dist.init_process_group(
            "gloo", init_method=f"file://{store}", rank=rank, world_size=world,
            timeout=datetime.timedelta(seconds=seconds),
        )  # fmt: skip
        if world == 1:
            exchange: Any = Alone()
        elif transport == "shm":
            exchange = SharedMemoryExchange(timeout=seconds)
        else:
            exchange = GroupExchange()
        found = work(exchange, *arguments)
        answer.send((True, found))
        answer.close()
        dist.barrier()
        dist.destroy_process_group()
    except BaseException as error:
        if not answer.closed:
            known = isinstance(error, (ValueError, TypeError, FileNotFoundError, RuntimeError))
            text = str(error) if known else traceback.format_exc()
            with contextlib.suppress(OSError):
                answer.send((False, (type(error).__name__, text)))
