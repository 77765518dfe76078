"""A PostgreSQL server of the tests' own: a throw-away cluster on a free loopback port."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any

PASSWORD = "p@ss/word:1"  # with the signs that a URL must escape
QUOTED = "p%40ss%2Fword%3A1"


def binaries() -> Path | None:
    """The folder of the server's programs, or None where there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path else None


def reason_to_skip() -> str:
    """Why no server can be started here, or nothing."""
    if binaries() is None:
        return "PostgreSQL is not installed: apt-get install postgresql"
    if os.geteuid() == 0 and (_as_postgres() is None):
        return "PostgreSQL refuses to run as root, and there is no user 'postgres'"
    return ""


def _as_postgres() -> list[str] | None:
    """What a command is prefixed with: nothing, unless this is root."""
    if os.geteuid() != 0:
        return []
    known = subprocess.run(["id", "postgres"], capture_output=True).returncode == 0
    return ["runuser", "-u", "postgres", "--"] if known and shutil.which("runuser") else None


class Server:
    """A running server.

    Attributes:
        port: where it listens on 127.0.0.1.
    """

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="armillary-pg-", dir="/tmp"))
        if os.geteuid() == 0:
            shutil.chown(self._folder, "postgres")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        word = self._folder / "word"
        word.write_text(PASSWORD)
        if os.geteuid() == 0:
            shutil.chown(word, "postgres")
        self._do(
            "initdb", "-D", str(self._folder / "data"), "-U", "armillary", "-A", "scram-sha-256",
            "--pwfile", str(word), "-N", "-E", "UTF8", "--locale", "C.UTF-8",
        )  # fmt: skip
        self._made = 0
        self.start()

    def _do(self, program: str, *arguments: str) -> None:
        folder = binaries()
        prefix = _as_postgres()
        assert folder is not None
        assert prefix is not None
        # A file, not a pipe: the server would hold a pipe open.
        with tempfile.TemporaryFile("w+") as said:
            done = subprocess.run(
                [*prefix, str(folder / program), *arguments],
                stdin=subprocess.DEVNULL, stdout=said, stderr=said, cwd="/", timeout=120,
            )  # fmt: skip
            said.seek(0)
            assert done.returncode == 0, said.read()

    def start(self) -> None:
        """Start it and wait until it answers."""
        options = f"-h 127.0.0.1 -p {self.port} -k {self._folder} -F -c fsync=off"
        self._control("start", "-w", "-l", str(self._folder / "log"), "-o", options)

    def stop(self) -> None:
        """End it at once, with every connection."""
        self._control("stop", "-w", "-m", "immediate")

    def _control(self, *arguments: str) -> None:
        self._do("pg_ctl", "-D", str(self._folder / "data"), *arguments)

    def remove(self) -> None:
        """Stop it and delete its files."""
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def url(self, database: str, password: str = QUOTED) -> str:
        """A URL of a database on it."""
        return f"postgresql://armillary:{password}@127.0.0.1:{self.port}/{database}"

    def connect(self, database: str = "postgres") -> Any:
        """A connection that commits every statement."""
        import psycopg

        return psycopg.connect(
            host="127.0.0.1", port=self.port, user="armillary", password=PASSWORD,
            dbname=database, autocommit=True,
        )  # fmt: skip

    def new_database(self) -> str:
        """The URL of an empty database."""
        self._made += 1
        name = f"made_{self._made}"
        with self.connect() as connection:
            connection.execute(f"CREATE DATABASE {name}")  # pyright: ignore
        return self.url(name)
