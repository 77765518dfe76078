"""Where measurements are kept: one row a (cell, contender, repeat), never two for one key.

SQLite through SQLAlchemy Core. Rows are keyed by (fingerprint, experiment, case, seed, contender,
repeat) and written in one transaction a cell, so that an interrupted run loses at most the cell
that it was measuring. Runs are ordered by their number and never by a clock.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event, exc

from armillary import places
from armillary.evidence.bundle import Bundle
from armillary.evidence.scrub import hide_passwords
from armillary.evidence.shapes import Row
from armillary.output.files import to_json

SCHEMA_VERSION = 2
BUSY_SECONDS = 60.0
FILE_NAME = "evidence.sqlite"

_KEY = ("fingerprint", "experiment", "case_name", "seed", "contender", "repeat")
_NETWORK_FILE_SYSTEMS = frozenset(
    (
        "nfs", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "9p", "afs", "ceph", "lustre",
        "gpfs", "glusterfs", "beegfs", "fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.rclone",
        "fuse.gcsfuse", "virtiofs", "vboxsf", "prl_fs",
    )
)  # fmt: skip

metadata = sa.MetaData()

meta = sa.Table(
    "meta",
    metadata,
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)

runs = sa.Table(
    "runs",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("method", sa.Text, nullable=False),
    sa.Column("profile", sa.String(16), nullable=False),
    sa.Column("whole", sa.Boolean, nullable=False),
    sa.Column("finished", sa.Boolean, nullable=False),
    sa.Column("seconds", sa.Float, nullable=False),
    sa.Column("plan", sa.Text, nullable=False),
    sa.Column("environment", sa.Text, nullable=False),
    sa.Column("claims", sa.Text, nullable=False),
    sa.Index("runs_by_method", "method", "profile"),
    sqlite_autoincrement=True,
)

cells = sa.Table(
    "cells",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("fingerprint", sa.String(64), nullable=False),
    sa.Column("method", sa.Text, nullable=False),
    sa.Column("experiment", sa.Text, nullable=False),
    sa.Column("profile", sa.String(16), nullable=False),
    sa.Column("case_name", sa.Text, nullable=False),
    sa.Column("seed", sa.BigInteger, nullable=False),
    sa.Column("contender", sa.Text, nullable=False),
    sa.Column("repeat", sa.Integer, nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("seconds", sa.Float, nullable=False),
    sa.UniqueConstraint(*_KEY, name="one_row_a_measurement"),
    sa.Index("cells_by_method", "method", "experiment"),
    sqlite_autoincrement=True,
)

metrics = sa.Table(
    "metrics",
    metadata,
    sa.Column("cell", sa.ForeignKey("cells.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("value", sa.Float, nullable=False),
)

#: How long whole groups took, setup and warm-up included: what `--dry-run` estimates from.
groups = sa.Table(
    "groups",
    metadata,
    sa.Column("fingerprint", sa.String(64), primary_key=True),
    sa.Column("experiment", sa.Text, primary_key=True),
    sa.Column("case_name", sa.Text, primary_key=True),
    sa.Column("seed", sa.BigInteger, primary_key=True),
    sa.Column("method", sa.Text, nullable=False),
    sa.Column("profile", sa.String(16), nullable=False),
    sa.Column("seconds", sa.Float, nullable=False),
)


def _add_groups(connection: sa.Connection) -> None:
    """Schema 1 knew no seconds of whole groups."""
    groups.create(connection, checkfirst=True)


#: What brings a store from a schema to the next one.
_MIGRATIONS = {1: _add_groups}


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


class Store:
    """Measurements, runs and their verdicts.

    Args:
        url: a SQLAlchemy URL (``sqlite:///…``) or the path of an SQLite file; None: the user's own
            store, ``evidence.sqlite`` in `armillary.places.data_dir`.
        read_only: open an existing store and write nothing, not even next to it.

    Raises:
        StoreUnavailable: it cannot be created or opened; the message names ``--store`` and
            ``ARMILLARY_HOME``.
        FileNotFoundError: ``read_only`` and there is no such file.
        ValueError: the URL is not understood, the file is no store, or a newer version of
            Armillary wrote it.
    """

    def __init__(self, url: str | os.PathLike[str] | None = None, *, read_only: bool = False):
        self.read_only = read_only
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        self._url = _parsed(url)
        self.path = Path(self._url.database or "")
        self.shown_url = hide_passwords(self._url.render_as_string(hide_password=True))
        if read_only and not self.path.is_file():
            raise FileNotFoundError(
                f"no store at {str(self.path)!r}: run `armillary bench` first, or name another "
                "with --store"
            )
        if not read_only:
            _make_folder(self.path)
        self._engine = self._open()
        try:
            with _explained(self.path):
                self._prepare()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection; the object cannot be used afterwards."""
        self._engine.dispose()
        if self._copy is not None:
            self._copy.cleanup()

    # ---- opening -------------------------------------------------------------------------------

    def _open(self) -> sa.Engine:
        url = self._url
        if self.read_only:
            url = sa.URL.create("sqlite", database=self._read_only_uri(), query={"uri": "true"})
        engine = sa.create_engine(url, connect_args={"timeout": BUSY_SECONDS})
        journal = "DELETE" if _on_network(self.path) else "WAL"

        @event.listens_for(engine, "connect")
        def _connected(connection: Any, _record: Any) -> None:
            connection.isolation_level = None  # transactions begin where `_begin` says
            connection.execute("PRAGMA foreign_keys=ON")
            if not self.read_only:
                _set_journal(connection, journal)
                connection.execute("PRAGMA synchronous=FULL")

        @event.listens_for(engine, "begin")
        def _begin(connection: sa.Connection) -> None:
            # A writer takes its lock at once: two that read first and then write would deadlock.
            write = connection.get_execution_options().get("armillary_write", False)
            connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

        return engine

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

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        """One transaction: all of it is stored, or none."""
        with (
            _explained(self.path),
            self._engine.connect().execution_options(armillary_write=True) as connection,
            connection.begin(),
        ):
            yield connection

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        with (
            _explained(self.path),
            self._engine.connect().execution_options(armillary_write=False) as connection,
            connection.begin(),
        ):
            yield connection

    def _prepare(self) -> None:
        """Create the tables, or bring an older schema up to date."""
        with self._reading() as connection:
            version = _version(connection)
        self._schema = version
        if self.read_only and version == 0:
            raise FileNotFoundError(
                f"the store {str(self.path)!r} holds nothing yet: run `armillary bench` first"
            )
        if self.read_only or version == SCHEMA_VERSION:
            return  # what is read has been there since schema 1
        with self._writing() as connection:
            version = _version(connection)  # another process may have been here meanwhile
            if version == 0:
                metadata.create_all(connection, checkfirst=True)
            for step in range(max(version, 1), SCHEMA_VERSION):
                _MIGRATIONS[step](connection)
            _set_version(connection, SCHEMA_VERSION)
        self._schema = SCHEMA_VERSION

    # ---- measurements --------------------------------------------------------------------------

    def put(self, fingerprint: str, rows: Iterable[Row], *, replace_group: bool = False) -> None:
        """Store rows in one transaction.

        A key that already holds a measurement keeps it; one that holds a ``not run`` is replaced.
        Non-finite metrics make the row a failure of kind ``nan`` or ``inf``.

        Args:
            fingerprint: of the rows' experiment.
            rows: measurements of that experiment.
            replace_group: first remove whatever the rows' (case, seed, contender) hold: a timed
                group is stored whole or not at all.

        Raises:
            StoreFull: the disk is full; nothing of this call is stored.
            StoreUnavailable: the file has become unwritable.
        """
        rows = [only_finite(row) for row in rows]
        with self._writing() as connection:
            if replace_group:
                for row in {(r.experiment, r.case, r.seed, r.contender): r for r in rows}.values():
                    _remove(connection, _same_cell(fingerprint, row))
            for row in rows:
                _insert(connection, fingerprint, row)

    def rows(
        self, fingerprint: str, experiment: str, seeds: Sequence[int] | None = None
    ) -> list[Row]:
        """The rows of an experiment under a fingerprint, in the order of their keys."""
        query = sa.select(cells).where(
            cells.c.fingerprint == fingerprint, cells.c.experiment == experiment
        )
        if seeds is not None:
            if not seeds:
                return []
            query = query.where(cells.c.seed.between(min(seeds), max(seeds)))
        query = query.order_by(cells.c.case_name, cells.c.seed, cells.c.contender, cells.c.repeat)
        found = (
            sa.select(metrics)
            .join(cells, cells.c.id == metrics.c.cell)
            .where(cells.c.fingerprint == fingerprint, cells.c.experiment == experiment)
            .order_by(metrics.c.cell, metrics.c.name)
        )
        values: dict[int, dict[str, float]] = {}
        with self._reading() as connection:
            for cell, name, value in connection.execute(found):
                values.setdefault(cell, {})[name] = value
            stored = connection.execute(query).all()
        wanted = None if seeds is None else set(seeds)
        return [
            _row(line, values.get(line.id, {}))
            for line in stored
            if wanted is None or line.seed in wanted
        ]

    def put_seconds(
        self, fingerprint: str, method: str, experiment: str, profile: str, case: str, seed: int,
        seconds: float,
    ) -> None:  # fmt: skip
        """Remember how long a whole (case, seed) group took."""
        key = {
            "fingerprint": fingerprint, "experiment": experiment, "case_name": case, "seed": seed
        }  # fmt: skip
        with self._writing() as connection:
            connection.execute(
                groups.delete().where(*(groups.c[name] == value for name, value in key.items()))
            )
            connection.execute(
                groups.insert().values(**key, method=method, profile=profile, seconds=seconds)
            )

    def typical_seconds(self, method: str, experiment: str, profile: str) -> dict[str, float]:
        """Mean seconds of a group by case, from whatever code and versions were stored before."""
        if self._schema < 2:
            return {}
        query = (
            sa.select(groups.c.case_name, sa.func.avg(groups.c.seconds))
            .where(
                groups.c.method == method,
                groups.c.experiment == experiment,
                groups.c.profile == profile,
            )
            .group_by(groups.c.case_name)
        )
        with self._reading() as connection:
            return {case: float(mean) for case, mean in connection.execute(query)}

    # ---- runs ----------------------------------------------------------------------------------

    def begin_run(
        self,
        method: str,
        profile: str,
        *,
        plan: Mapping[str, Any],
        environment: Mapping[str, Any],
        whole: bool = True,
    ) -> int:
        """Leave a trace of a run before its first row; gives its number.

        Args:
            method: the slug.
            profile: the profile.
            plan: ``{experiment: {"fingerprint": …, "seeds": […]}}``.
            environment: as `armillary.evidence.bundle` describes it.
            whole: whether it covers all of the method's experiments.
        """
        with self._writing() as connection:
            done = connection.execute(
                runs.insert().values(
                    method=method,
                    profile=profile,
                    whole=whole,
                    finished=False,
                    seconds=0.0,
                    plan=to_json(plan, None),
                    environment=to_json(environment, None),
                    claims="[]",
                )
            )
        return int(done.inserted_primary_key[0])  # pyright: ignore[reportOptionalSubscript]

    def finish_run(
        self,
        number: int,
        *,
        seconds: float,
        environment: Mapping[str, Any],
        claims: Sequence[Mapping[str, Any]],
    ) -> None:
        """Store a run's verdicts: from now on `bundles` shows it."""
        with self._writing() as connection:
            connection.execute(
                runs.update()
                .where(runs.c.id == number)
                .values(
                    finished=True,
                    seconds=seconds,
                    environment=to_json(environment, None),
                    claims=to_json(claims, None),
                )
            )

    def bundle(self, slug: str, profile: str) -> Bundle | None:
        """The latest run of a method at a profile, or None.

        Later runs of single claims replace those claims, and their experiments' rows, of the
        latest whole run.
        """
        with self._reading() as connection:
            history = connection.execute(
                sa.select(runs)
                .where(runs.c.method == slug, runs.c.profile == profile, runs.c.finished)
                .order_by(runs.c.id)
            ).all()
        if not history:
            return None
        whole = [i for i, run in enumerate(history) if run.whole]
        relevant = history[whole[-1] :] if whole else history
        claims: dict[str, dict[str, Any]] = {}
        plan: dict[str, dict[str, Any]] = {}
        described: dict[str, Any] = {}
        environment: dict[str, Any] = {}
        for run in relevant:
            claims.update((claim["claim"], claim) for claim in json.loads(run.claims))
            plan.update(json.loads(run.plan))
            environment = json.loads(run.environment)
            described.update(environment.get("experiments", {}))
        environment["experiments"] = described
        rows = [
            row
            for experiment, where in plan.items()
            for row in self.ordered_rows(experiment, where, described.get(experiment, {}))
        ]
        return Bundle(slug, profile, list(claims.values()), rows, environment)

    def ordered_rows(
        self, experiment: str, where: Mapping[str, Any], described: Mapping[str, Any]
    ) -> list[Row]:
        """An experiment's rows in the order of its cases, seeds, contenders and repeats.

        Cases and contenders that the experiment does not name are left out.
        """
        case = {c["name"]: i for i, c in enumerate(described.get("cases", ()))}
        who = {c["name"]: i for i, c in enumerate(described.get("contenders", ()))}
        found = self.rows(where["fingerprint"], experiment, where["seeds"])
        return sorted(
            (row for row in found if row.case in case and row.contender in who),
            key=lambda row: (case[row.case], row.seed, who[row.contender], row.repeat),
        )

    def bundles(self) -> list[Bundle]:
        """The latest run of every method at every profile, by slug and profile."""
        query = sa.select(runs.c.method, runs.c.profile).where(runs.c.finished).distinct()
        with self._reading() as connection:
            keys = sorted(connection.execute(query).all())
        found = (self.bundle(slug, profile) for slug, profile in keys)
        return [bundle for bundle in found if bundle is not None]


def only_finite(row: Row) -> Row:
    """The row, or a failure of kind ``nan`` or ``inf`` if one of its metrics is not finite."""
    for name, value in row.metrics.items():
        if not math.isfinite(value):
            kind = "nan" if math.isnan(value) else "inf"
            return Row(
                row.method, row.experiment, row.profile, row.case, row.seed, row.contender,
                row.repeat, "failed", kind, f"metric {name!r} is {value}", {}, row.seconds,
            )  # fmt: skip
    return row


def _insert(connection: sa.Connection, fingerprint: str, row: Row) -> None:
    key = sa.and_(_same_cell(fingerprint, row), cells.c.repeat == row.repeat)
    status = connection.execute(sa.select(cells.c.status).where(key)).scalar()
    if status is not None:
        if status != "not run":
            return
        _remove(connection, key)
    done = connection.execute(
        cells.insert().values(
            fingerprint=fingerprint,
            method=row.method,
            experiment=row.experiment,
            profile=row.profile,
            case_name=row.case,
            seed=row.seed,
            contender=row.contender,
            repeat=row.repeat,
            status=row.status,
            kind=row.kind,
            reason=row.reason,
            seconds=row.seconds,
        )
    )
    number = done.inserted_primary_key[0]  # pyright: ignore[reportOptionalSubscript]
    if row.metrics:
        connection.execute(
            metrics.insert(),
            [{"cell": number, "name": n, "value": float(v)} for n, v in row.metrics.items()],
        )


def _same_cell(fingerprint: str, row: Row) -> sa.ColumnElement[bool]:
    return sa.and_(
        cells.c.fingerprint == fingerprint,
        cells.c.experiment == row.experiment,
        cells.c.case_name == row.case,
        cells.c.seed == row.seed,
        cells.c.contender == row.contender,
    )


def _remove(connection: sa.Connection, which: sa.ColumnElement[bool]) -> None:
    numbers = sa.select(cells.c.id).where(which).scalar_subquery()
    connection.execute(metrics.delete().where(metrics.c.cell.in_(numbers)))
    connection.execute(cells.delete().where(which))


def _row(line: Any, values: Mapping[str, float]) -> Row:
    return Row(
        line.method, line.experiment, line.profile, line.case_name, line.seed, line.contender,
        line.repeat, line.status, line.kind, line.reason, dict(values), line.seconds,
    )  # fmt: skip


def _parsed(url: str | os.PathLike[str] | None) -> sa.URL:
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
            f"store={hide_passwords(text)!r} is not understood: give the path of an SQLite file "
            "or sqlite:///PATH"
        ) from None
    if (
        parsed.get_backend_name() != "sqlite"
        or not parsed.database
        or parsed.database == ":memory:"
    ):
        raise ValueError(
            f"store={hide_passwords(text)!r}: a store is an SQLite file, given by its path or as "
            "sqlite:///PATH"
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


def _on_network(path: Path) -> bool:
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
    import sqlite3

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


def _version(connection: sa.Connection) -> int:
    """The schema of the store: 0 for a fresh file.

    Raises:
        ValueError: the file belongs to something else, or to a newer version.
    """
    tables = set(sa.inspect(connection).get_table_names())
    if not tables:
        return 0
    if "meta" not in tables or "cells" not in tables:
        raise ValueError(
            "this SQLite file is no store of Armillary (it has other tables): give another with "
            "--store"
        )
    found = connection.execute(
        sa.select(meta.c.value).where(meta.c.name == "schema_version")
    ).scalar()
    version = int(found or 0)
    if version > SCHEMA_VERSION:
        raise ValueError(
            f"the store has schema {version} and this version reads up to {SCHEMA_VERSION}: update "
            "Armillary (pip install -U armillary), or name another store with --store"
        )
    return version


def _set_version(connection: sa.Connection, version: int) -> None:
    connection.execute(meta.delete().where(meta.c.name == "schema_version"))
    connection.execute(meta.insert().values(name="schema_version", value=str(version)))
