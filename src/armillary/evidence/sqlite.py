"""The SQLite file behind the store: opening it anywhere, and its complaints in plain words."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event, exc

from armillary import places
from armillary.evidence.scrub import hide_passwords

BUSY_SECONDS = 60.0
FILE_NAME = "evidence.sqlite"

_NETWORK_FILE_SYSTEMS = frozenset(
    (
        "nfs", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "9p", "afs", "ceph", "lustre",
        "gpfs", "glusterfs", "beegfs", "fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.rclone",
        "fuse.gcsfuse", "virtiofs", "vboxsf", "prl_fs",
    )
)  # fmt: skip


class StoreUnavailable(PermissionError):
    """The store cannot be opened or written where it is asked for."""


class StoreFull(OSError):
    """Nothing more can be written; what is stored already is intact."""


def default_url() -> str:
    """The URL of the user's own store."""
    return _sqlite_url(places.data_dir() / FILE_NAME)


def _sqlite_url(path: Path) -> str:
    return sa.URL.create("sqlite", database=str(path.expanduser().absolute())).render_as_string(
        hide_password=False
    )


class Database:
    """An SQLite file and its transactions.

    Args:
        url: a SQLAlchemy URL or a path; None: the user's own store.
        read_only: write nothing, not even beside the file.

    Raises:
        StoreUnavailable: the folder cannot be made.
        FileNotFoundError: ``read_only`` and there is no such file.
        ValueError: the URL is not understood.
    """

    def __init__(self, url: str | os.PathLike[str] | None, read_only: bool) -> None:
        parsed = parse(url)
        self.path = Path(parsed.database or "")
        self.name = repr(str(self.path))
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        if not read_only:
            _make_folder(self.path)
        elif not self.path.is_file():
            raise FileNotFoundError(
                f"no store at {str(self.path)!r}: run `armillary bench` first, or name another "
                "with --store"
            )
        else:
            parsed = sa.URL.create("sqlite", database=self._read_only_uri(), query={"uri": "true"})
        self.engine = sa.create_engine(parsed, connect_args={"timeout": BUSY_SECONDS})
        _configure(self.engine, None if read_only else journal_for(self.path))

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()
        if self._copy is not None:
            self._copy.cleanup()

    @contextlib.contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """One transaction: all of it is stored, or none."""
        with (
            _explained(self.path),
            self.engine.connect().execution_options(armillary_write=True) as connection,
            connection.begin(),
        ):
            yield connection

    @contextlib.contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A view of the store as it is at one moment."""
        with (
            _explained(self.path),
            self.engine.connect().execution_options(armillary_write=False) as connection,
            connection.begin(),
        ):
            yield connection

    def _read_only_uri(self) -> str:
        """A URI that reads the file and needs no right to write beside it.

        SQLite reads a write-ahead log only where it may write an index beside it; elsewhere (a
        killed run's store in somebody else's folder) a copy is read.
        """
        path = self.path.absolute()
        if os.access(path.parent, os.W_OK):
            return path.as_uri() + "?mode=ro"
        log = path.with_name(path.name + "-wal")
        if not log.exists() or not log.stat().st_size:
            return path.as_uri() + "?mode=ro&immutable=1"
        self._copy = tempfile.TemporaryDirectory(prefix="armillary-")
        for file in (path, log):
            shutil.copy(file, self._copy.name)
        return (Path(self._copy.name) / path.name).as_uri() + "?mode=ro"


def _configure(engine: sa.Engine, journal: str | None) -> None:
    """Let transactions begin where they are asked for, and set a journal unless only reading."""

    @event.listens_for(engine, "connect")
    def _connected(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # transactions begin where `_begin` says
        connection.execute("PRAGMA foreign_keys=ON")
        if journal is not None:
            _set_journal(connection, journal)
            connection.execute("PRAGMA synchronous=FULL")

    @event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        # A writer takes its lock at once: two that read first and then write would deadlock.
        write = connection.get_execution_options().get("armillary_write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def journal_for(path: Path) -> str:
    """The journal mode that suits the file system of a file."""
    return "DELETE" if on_network(path) else "WAL"


def parse(url: str | os.PathLike[str] | None) -> sa.URL:
    """A URL from what the user gave: nothing, a path, or a URL."""
    text = default_url() if url is None else os.fspath(url)
    if not text:
        raise ValueError("store='' is empty: give the path of an SQLite file or sqlite:///PATH")
    if "://" not in text:
        text = _sqlite_url(Path(text))
    try:
        parsed = sa.make_url(text)
    except exc.ArgumentError:
        raise ValueError(
            f"store={hide_passwords(text)!r} is not understood: give the path of an SQLite "
            "file, sqlite:///PATH or postgresql://USER@HOST/DATABASE"
        ) from None
    if (
        parsed.get_backend_name() != "sqlite"
        or not parsed.database
        or parsed.database == ":memory:"
    ):
        raise ValueError(
            f"store={hide_passwords(text)!r}: a store is an SQLite file, given by its path or as "
            "sqlite:///PATH, or a PostgreSQL database, postgresql://USER@HOST/DATABASE"
        )
    return parsed


def _make_folder(path: Path) -> None:
    if path.is_dir():
        raise IsADirectoryError(
            f"the store {str(path)!r} is a folder: give a file, such as {str(path / FILE_NAME)!r}"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unavailable(path, error.strerror or str(error)) from error


def _unavailable(path: Path, why: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"the store {str(path)!r} cannot be written ({why}): name another file with --store, or "
        "another folder with ARMILLARY_HOME"
    )


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """SQLite's complaints in words that say what to do."""
    try:
        yield
    except exc.DatabaseError as error:
        cause = str(error.orig)
        if "full" in cause or "disk I/O" in cause:
            raise StoreFull(
                f"the store {str(path)!r} could not be written ({cause}): make room on its disk, "
                "or name another with --store, and run again: what is stored is kept"
            ) from error
        if "not a database" in cause or "malformed" in cause:
            raise ValueError(
                f"{str(path)!r} is not a readable store ({cause}): move it away, or name another "
                "with --store"
            ) from error
        if "readonly" in cause or "unable to open" in cause or "locked" in cause:
            raise _unavailable(path, cause) from error
        raise


def on_network(path: Path) -> bool:
    """Whether the folder of a file is mounted over a network, where WAL cannot work."""
    folder = os.path.realpath(path.parent)
    best, kind = "", ""
    try:
        mounts = Path("/proc/self/mounts").read_text("utf-8", "replace").splitlines()
    except OSError:
        return False
    for line in mounts:
        fields = line.split()
        point = fields[1].replace("\\040", " ")
        inside = folder == point or folder.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, fields[2]
    return kind in _NETWORK_FILE_SYSTEMS


def _set_journal(connection: Any, journal: str) -> None:
    """Ask for a journal mode; the change needs the file alone, so others are waited for."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
            if mode.upper() != journal:
                connection.execute(f"PRAGMA journal_mode={journal}")
            return
        except sqlite3.OperationalError as error:
            if "locked" in str(error) and time.monotonic() < deadline:
                time.sleep(0.05)
                continue
            if journal == "WAL" and "readonly" not in str(error):
                journal = "DELETE"  # a file system without shared memory
                continue
            raise
