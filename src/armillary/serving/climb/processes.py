"""Servers in processes of their own, for evidence: started, waited for, and always stopped."""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

#: Ends a server's process group when the pipe from whoever started it closes, however that ended.
_WATCH = """
import os, sys, time
sys.stdin.read()
group = int(sys.argv[1])
try:
    os.killpg(group, 15)
    for _ in range(50):
        time.sleep(0.1)
        os.killpg(group, 0)
    os.killpg(group, 9)
except ProcessLookupError:
    pass
"""


def free_port() -> int:
    """A port of loopback that nobody listens at."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """A process that answers HTTP on loopback, and ends with the process that started it.

    Args:
        command: what to run; ``{port}`` stands for the port.
        ready: path that answers 200 when it is up.
        seconds: until then, at most.
        environment: added to ours.
        log: file of what it prints; None: nowhere.

    Attributes:
        address: ``http://127.0.0.1:port``.

    Raises:
        RuntimeError: it ended, or was not up in time.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        ready: str = "/health",
        seconds: float = 60.0,
        environment: Mapping[str, str] | None = None,
        log: Path | None = None,
    ) -> None:
        port = free_port()
        self.address = f"http://127.0.0.1:{port}"
        out = subprocess.DEVNULL if log is None else log.open("ab")
        self.process = subprocess.Popen(
            [part.replace("{port}", str(port)) for part in command],
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
        if log is not None:
            out.close()  # pyright: ignore[reportAttributeAccessIssue]
        self._watch = subprocess.Popen(
            [sys.executable, "-ISc", _WATCH, str(self.process.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        atexit.register(self.stop)
        self._wait(self.address + ready, seconds)

    def _wait(self, url: str, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended with exit code {self.process.returncode}")
            try:
                with urllib.request.urlopen(url, timeout=2) as answer:
                    if answer.status == 200:
                        return
            except (urllib.error.URLError, OSError):
                time.sleep(0.05)
        self.stop()
        raise RuntimeError(f"the server did not answer within {seconds:g} s")

    @property
    def rss_mb(self) -> float:
        """Memory that the process holds, in MB."""
        with open(f"/proc/{self.process.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

    def stop(self) -> None:
        """End it, and whatever it started."""
        if self.process.poll() is None:
            for sig in (15, 9):
                try:
                    os.killpg(self.process.pid, sig)
                    self.process.wait(10)
                    break
                except subprocess.TimeoutExpired:
                    continue
                except ProcessLookupError:
                    break
        if self._watch.stdin is not None:
            self._watch.stdin.close()
        self._watch.wait(10)
        atexit.unregister(self.stop)


def python(code: str) -> list[str]:
    """A command that runs a line of Python with our packages."""
    return [sys.executable, "-c", code]


def emitter(tokens: int = 8) -> Server:
    """A server that answers at once, with this many events."""
    return Server(
        python(
            "import uvicorn\n"
            "from armillary.serving.climb.emulator import create_emitter\n"
            f"uvicorn.run(create_emitter({tokens}), host='127.0.0.1', port={{port}}, "
            "log_level='critical', access_log=False)"
        )
    )


def emulator(model: str, slots: int, adapters: Sequence[str]) -> Server:
    """The emulated engine; ``model`` is the text of an `EngineModel`."""
    return Server(
        python(
            "import uvicorn\n"
            "from armillary.serving.climb.emulator import create_engine\n"
            "from armillary.serving.climb.engine_model import EngineModel\n"
            f"app = create_engine({model}, {slots}, {list(adapters)!r})\n"
            "uvicorn.run(app, host='127.0.0.1', port={port}, log_level='critical', "
            "access_log=False)"
        )
    )


def ingress(config: str, *, before: str = "") -> Server:
    """Our ingress; ``config`` is the text of a `ClimbConfig`, ``before`` is run first."""
    return Server(
        python(
            "from armillary.serving.climb.app import serve\n"
            "from armillary.serving.climb.config import AdapterConfig, ClimbConfig\n"
            f"{before}\n"
            f"serve({config}, '127.0.0.1', {{port}})"
        ),
        ready="/healthz",
    )
