"""Where measurements are kept: one row a (cell, contender, repeat), never two for one key.

SQLite or PostgreSQL through SQLAlchemy Core. Rows are keyed by (fingerprint, experiment, case,
seed, contender, repeat) and written in one transaction a cell, so that an interrupted run loses at
most the cell that it was measuring. Runs are ordered by their number and never by a clock.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from armillary.evidence import postgres, schema
from armillary.evidence.bundle import Bundle
from armillary.evidence.postgres import PostgresDatabase, StoreLost
from armillary.evidence.schema import SCHEMA_VERSION, cells, groups, metrics, runs
from armillary.evidence.shapes import Row
from armillary.evidence.sqlite import Database, StoreFull, StoreUnavailable
from armillary.output.files import to_json

__all__ = ["Store", "StoreFull", "StoreLost", "StoreUnavailable", "only_finite"]


class Store:
    """Measurements, runs and their verdicts.

    Args:
        url: the path of an SQLite file, or a SQLAlchemy URL (``sqlite:///…`` or
            ``postgresql://…``); None: the user's own store, ``evidence.sqlite`` in
            `armillary.places.data_dir`.
        read_only: open an existing store and write nothing, not even next to it.

    Raises:
        StoreUnavailable: it cannot be created, opened or reached; the message names ``--store``.
        MissingExtra: a PostgreSQL URL, and the driver is not installed.
        FileNotFoundError: ``read_only`` and there is no such file, or it holds nothing yet.
        ValueError: the URL is not understood, the file is no store, or a newer version of
            Armillary wrote it.
    """

    def __init__(self, url: str | os.PathLike[str] | None = None, *, read_only: bool = False):
        self.read_only = read_only
        self._database = _database(url, read_only)
        self.path = self._database.path
        try:
            self._schema = self._prepare()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection; the object cannot be used afterwards."""
        self._database.close()

    def _prepare(self) -> int:
        """Bring the tables up to date unless only reading; gives the version of their schema."""
        with self._database.reading() as connection:
            version = schema.version_of(connection)
        if version == SCHEMA_VERSION:
            return version
        if self.read_only:
            if version == 0:
                raise FileNotFoundError(
                    f"the store {self._database.name} holds nothing yet: run `armillary bench` "
                    "first"
                )
            return version  # what is read has been there since schema 1
        with self._database.writing() as connection:
            schema.bring_up_to_date(connection)  # another process may have done it meanwhile
        return SCHEMA_VERSION

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
            StoreLost: the server went away; the call is stored whole or not at all.
            StoreUnavailable: the store has become unwritable.
        """
        rows = [only_finite(row) for row in rows]
        with self._database.writing() as connection:
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
        found = (
            sa.select(metrics)
            .join(cells, cells.c.id == metrics.c.cell)
            .where(cells.c.fingerprint == fingerprint, cells.c.experiment == experiment)
        )
        values: dict[int, dict[str, float]] = {}
        with self._database.reading() as connection:
            # Sorted here: databases differ in how they order text.
            for cell, name, value in sorted(tuple(line) for line in connection.execute(found)):
                values.setdefault(cell, {})[name] = value
            stored = sorted(
                connection.execute(query),
                key=lambda line: (line.case_name, line.seed, line.contender, line.repeat),
            )
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
        with self._database.writing() as connection:
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
        with self._database.reading() as connection:
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
        with self._database.writing() as connection:
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
        with self._database.writing() as connection:
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
        with self._database.reading() as connection:
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
        with self._database.reading() as connection:
            keys = sorted(connection.execute(query).all())
        found = (self.bundle(slug, profile) for slug, profile in keys)
        return [bundle for bundle in found if bundle is not None]


def _database(url: str | os.PathLike[str] | None, read_only: bool) -> Database | PostgresDatabase:
    """The database that a URL names."""
    if isinstance(url, str) and postgres.is_postgres(url):
        return PostgresDatabase(url, read_only)
    return Database(url, read_only)


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
