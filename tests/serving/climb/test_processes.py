"""Servers of the evidence end when they are told to, and with whoever started them."""

from __future__ import annotations

import socket
import subprocess
import sys
import time

import pytest

from armillary.serving.climb.processes import emitter


def listens(port: int) -> bool:
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


def test_a_server_is_stopped_with_its_watch():
    server = emitter()
    port = int(server.address.rsplit(":", 1)[1])
    assert listens(port)
    server.stop()
    server.stop()  # a second time does nothing
    assert not listens(port)
    assert server.process.returncode is not None
    assert server._watch.returncode == 0


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "os._exit(0)"])
def test_a_server_ends_with_a_process_that_is_killed(end):
    code = (
        "import os\n"
        "from armillary.serving.climb.processes import emitter\n"
        "print(emitter().address, flush=True)\n"
        f"{end}"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    port = int(done.stdout.strip().rsplit(":", 1)[1])
    deadline = time.monotonic() + 20
    while listens(port) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not listens(port)
