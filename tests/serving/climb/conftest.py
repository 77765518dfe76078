"""Applications served on loopback, in a thread each."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest
import uvicorn


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@contextlib.contextmanager
def _served(app, port: int | None = None) -> Iterator[str]:
    """The address at which an application answers."""
    port = port or _free_port()
    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=port,
        log_level="critical",
        lifespan="on",
        timeout_graceful_shutdown=2,
    )
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # pyright: ignore[reportAttributeAccessIssue]
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 20
    while not server.started:
        if not thread.is_alive() or time.monotonic() > deadline:
            raise RuntimeError("the application did not start")
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        _stop(server, thread)


def _stop(server: uvicorn.Server, thread: threading.Thread) -> None:
    server.should_exit = server.force_exit = True
    thread.join(10)


@pytest.fixture(scope="session")
def served():
    """A context manager: the address at which an application answers."""
    return _served


@pytest.fixture(scope="session")
def free_port():
    """A function: a port that nobody listens at."""
    return _free_port
