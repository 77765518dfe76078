"""Starting, hearing and ending worker processes."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

_THREADS = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS",
    "TORCH_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "RAYON_NUM_THREADS",
)  # fmt: skip

_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[3]); "
    "from armillary.evidence.worker import main; main(int(sys.argv[1]), int(sys.argv[2]))"
)

_LOG_LIMIT = 1_000_000


class Worker:
    """A child process in a group of its own, so that it ends with all that it has started.

    Args:
        threads: of every numerical library, set before any of them is imported.
        environment: further variables.
        keep: descriptors that the child holds open as long as it lives.
    """

    def __init__(
        self, threads: int, environment: Mapping[str, str], keep: Sequence[int] = ()
    ) -> None:
        self.threads = threads
        job_read, self._jobs = os.pipe()
        self._events, event_write = os.pipe()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        path = json.dumps([entry or os.getcwd() for entry in sys.path])
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START, str(job_read), str(event_write), path],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=(job_read, event_write, *keep),
                start_new_session=True,
                env=_child_environment(threads, environment),
            )
        except BaseException:
            os.close(self._jobs)
            os.close(self._events)
            self._log.close()
            raise
        finally:
            os.close(job_read)
            os.close(event_write)
        os.set_blocking(self._events, False)
        self._buffer = b""

    def fileno(self) -> int:
        """The descriptor that becomes readable when events arrive or the process ends."""
        return self._events

    def send(self, job: Mapping[str, Any]) -> None:
        """Give the worker a job; one that has just died is noticed when events are read."""
        line = json.dumps(job).encode() + b"\n"
        with contextlib.suppress(BrokenPipeError):
            while line:
                line = line[os.write(self._jobs, line) :]

    def receive(self) -> list[dict[str, Any]] | None:
        """Events that have arrived; None once the process is gone and all events were read."""
        gone = self._process.poll() is not None
        ended = False
        while True:
            try:
                data = os.read(self._events, 1 << 16)
            except BlockingIOError:
                break
            if not data:
                ended = True
                break
            self._buffer += data
        *lines, self._buffer = self._buffer.split(b"\n")
        events = [json.loads(line) for line in lines]
        if events:
            return events
        return None if gone or ended else []

    def end(self) -> int:
        """Kill the process and its group; gives its exit status (negative: a signal)."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        status = self._process.wait()
        for descriptor in (self._jobs, self._events):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._log.close()
        return status

    def obituary(self) -> str:
        """Why a process that is gone has died, in one line."""
        deadline = time.monotonic() + 5
        while (status := self._process.poll()) is None and time.monotonic() < deadline:
            time.sleep(0.01)
        said = self._last_words()
        if status is not None and status < 0:
            name = signal.Signals(-status).name
            hint = ", often the kernel for want of memory" if -status == signal.SIGKILL else ""
            return f"killed by {name}{hint}{said}"
        return f"exited with status {status}{said}"

    def trim(self) -> None:
        """Forget a log that has grown long."""
        if os.fstat(self._log.fileno()).st_size > _LOG_LIMIT:
            self._log.truncate(0)
            self._log.seek(0)

    def _last_words(self) -> str:
        size = os.fstat(self._log.fileno()).st_size
        tail = os.pread(self._log.fileno(), 4000, max(0, size - 4000)).decode("utf-8", "replace")
        lines = [line.strip() for line in tail.splitlines() if line.strip()]
        fatal = [line for line in lines if line.startswith("Fatal Python error")]
        last = fatal[-1:] or lines[-1:]
        return f": {last[0]}" if last else ""


def _child_environment(threads: int, extra: Mapping[str, str]) -> dict[str, str]:
    environment = dict(os.environ)
    environment.update(dict.fromkeys(_THREADS, str(threads)))
    environment.setdefault("PYTHONHASHSEED", "0")
    environment.update(extra)
    return environment


def wait(workers: Sequence[Worker], seconds: float) -> None:
    """Sleep until a worker has something to say, or for so many seconds."""
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker, selectors.EVENT_READ)
        selector.select(seconds)
