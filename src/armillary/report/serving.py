"""A loopback server for a report: read-only, this machine only, nothing listed."""

from __future__ import annotations

import errno
import functools
import http.server
import os
from http import HTTPStatus
from pathlib import Path
from typing import Any

LOOPBACK = "127.0.0.1"


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Files of one folder, to a browser that asked for this machine by name."""

    def send_head(self) -> Any:
        # A page elsewhere that points its own name at 127.0.0.1 must not read the report.
        host = (self.headers.get("Host") or "").rsplit(":", 1)[0]
        if host not in (LOOPBACK, "localhost"):
            self.send_error(HTTPStatus.FORBIDDEN, "this server answers to 127.0.0.1 only")
            return None
        return super().send_head()

    def list_directory(self, path: Any) -> Any:
        self.send_error(HTTPStatus.NOT_FOUND, "not a page")

    def end_headers(self) -> None:
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the terminal shows the address and waits."""


class Server:
    """Serves a report on 127.0.0.1 until it is closed.

    Args:
        site: the report's folder.
        port: a port between 0 and 65535; 0 takes any that is free.

    Raises:
        FileNotFoundError: there is no report in ``site``.
        ValueError: the port is out of range or taken.
    """

    def __init__(self, site: str | os.PathLike[str], port: int = 0) -> None:
        site = Path(site).resolve()
        if not (site / "index.html").is_file():
            raise FileNotFoundError(
                f"no report in {str(site)!r}: build one with `armillary report -o {site}`"
            )
        if not 0 <= port <= 65535:
            raise ValueError(f"port {port} does not exist: give one from 0 (any) to 65535")
        handler = functools.partial(_Handler, directory=str(site))
        try:
            self._http = http.server.ThreadingHTTPServer((LOOPBACK, port), handler)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            why = "is in use" if error.errno == errno.EADDRINUSE else "is reserved for root"
            raise ValueError(
                f"port {port} {why}: give another one, or 0 for any that is free"
            ) from error
        self._http.daemon_threads = True

    @property
    def url(self) -> str:
        """Where a browser finds the overview."""
        return f"http://{LOOPBACK}:{self._http.server_address[1]}/"

    def serve_forever(self) -> None:
        """Answer until `close` is called from another thread or the process is interrupted."""
        self._http.serve_forever(poll_interval=0.2)

    def close(self) -> None:
        """Stop answering and free the port."""
        self._http.shutdown()
        self._http.server_close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.server_close()
