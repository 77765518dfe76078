"""Being alone on the machine: a lock for timed work, and a look at what else is running."""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

BUSY_VARIABLE = "ARMILLARY_BUSY_SECONDS"
QUIET_CORES = 0.2
_LOOK_SECONDS = 0.5


@contextlib.contextmanager
def alone(note: Callable[[str], None] = lambda _: None) -> Iterator[int]:
    """Hold the machine-wide lock of timed work; others wait for it.

    The lock belongs to the open file: a measuring process that inherits the descriptor keeps it
    even if the process that started it is killed.

    Args:
        note: told once if somebody else holds it.

    Yields:
        The descriptor of the lock, for a child to inherit.
    """
    descriptor = _open_lock()
    try:
        waited = False
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not waited:
                    note("another timed run holds this machine: waiting for it")
                waited = True
                time.sleep(0.2)
        yield descriptor
    finally:
        # Closing would not do while a child still holds a copy; that is meant.
        os.close(descriptor)


def lock_path() -> Path:
    """The lock's file, in the folder for temporary files that all users share."""
    return Path(tempfile.gettempdir()) / "armillary-timing.lock"


def _open_lock() -> int:
    path, flags = lock_path(), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, flags)  # another user's file opens too
    except FileNotFoundError:
        return os.open(path, flags | os.O_CREAT, 0o644)


def patience() -> float:
    """Seconds to wait for a quiet machine: ``ARMILLARY_BUSY_SECONDS`` or 60.

    ``off`` gives infinity: nothing is looked at, and the environment of the run says so.

    Raises:
        ValueError: the variable is neither a number of at least 0 nor ``off``.
    """
    text = os.environ.get(BUSY_VARIABLE, "60")
    if text == "off":
        return math.inf
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < math.inf:
        raise ValueError(f"{BUSY_VARIABLE}={text!r}: give seconds, or 'off' to measure regardless")
    return seconds


def wait_until_quiet(seconds: float) -> float | None:
    """Wait until others use less than `QUIET_CORES` cores for one second.

    Args:
        seconds: how long to wait at most; there is always at least one look.

    Returns:
        None once the machine is quiet (or cannot be looked at), else the cores that others used.
    """
    deadline = time.monotonic() + seconds
    while True:
        load = other_load(_LOOK_SECONDS)
        if load is None or load < QUIET_CORES:
            return None
        if time.monotonic() >= deadline:
            return load


def other_load(seconds: float) -> float | None:
    """Cores in use by other processes over a time, or None where ``/proc/stat`` is absent."""
    before = _busy_ticks()
    if before is None:
        return None
    own, start = _own_seconds(), time.monotonic()
    time.sleep(seconds)
    after = _busy_ticks()
    if after is None:
        return None
    elapsed = time.monotonic() - start
    busy = (after - before) / os.sysconf("SC_CLK_TCK")
    return max(0.0, (busy - (_own_seconds() - own)) / elapsed)


def _own_seconds() -> float:
    spent = os.times()
    return spent.user + spent.system


def _busy_ticks() -> int | None:
    """Ticks that all cores have spent on anything but idling and waiting for disks."""
    try:
        first = Path("/proc/stat").read_text("ascii").split("\n", 1)[0].split()
    except OSError:
        return None
    user, nice, system, _idle, _wait, irq, softirq, steal = (int(x) for x in first[1:9])
    return user + nice + system + irq + softirq + steal
