"""The loopback server: this machine only, files only, a taken port told."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from armillary import report


@pytest.fixture(scope="module")
def server(site: Path) -> Iterator[report.Server]:
    server = report.Server(site)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.close()
    thread.join(5)


def _get(server: report.Server, path: str, host: str = "") -> tuple[int, bytes]:
    address = urlsplit(server.url)
    assert address.hostname is not None
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=5)
    headers = {"Host": host} if host else {}
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read()


def test_pages_are_served_as_they_are(server: report.Server, site: Path) -> None:
    assert _get(server, "/") == (200, (site / "index.html").read_bytes())
    assert _get(server, "/methods/tango.html")[0] == 200


def test_the_address_is_loopback(server: report.Server) -> None:
    assert server.url.startswith("http://127.0.0.1:")
    address = server._http.server_address
    assert address[0] == "127.0.0.1"


@pytest.mark.parametrize("path", ["/../conftest.py", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd"])
def test_nothing_outside_the_report_is_served(server: report.Server, path: str) -> None:
    assert _get(server, path)[0] == 404


def test_folders_are_not_listed(server: report.Server) -> None:
    assert _get(server, "/methods/")[0] == 404
    assert _get(server, "/data/")[0] == 404


def test_another_name_for_this_machine_is_refused(server: report.Server) -> None:
    assert _get(server, "/", host="evil.example")[0] == 403
    assert _get(server, "/", host="evil.example:80")[0] == 403
    assert _get(server, "/", host="localhost:1234")[0] == 200


def test_a_taken_port_is_told(site: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=f"port {port} is in use: give another one, or 0"):
            report.Server(site, port)


def test_a_port_that_does_not_exist_is_told(site: Path) -> None:
    with pytest.raises(ValueError, match="port 70000 does not exist"):
        report.Server(site, 70000)


def test_a_folder_without_a_report_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no report in"):
        report.Server(tmp_path)
