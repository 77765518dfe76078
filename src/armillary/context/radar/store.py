"""Beliefs on disk: one row a question, whatever the number of steps; never a document.

SQLite by default (a path), any SQL database by SQLAlchemy URL. An observation is written by one
upsert in one transaction, so that a process that dies leaves the belief before or after it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event as sa_event
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError

from armillary.context.radar.memory import CampaignState, PaperState, from_plain, to_plain
from armillary.context.radar.times import Time as Time
from armillary.context.radar.times import as_number as as_number
from armillary.context.radar.times import unlike

SCHEMA = 1

_METADATA = sa.MetaData()
_BELIEFS = sa.Table(
    "radar_beliefs",
    _METADATA,
    sa.Column("question_key", sa.String(512), primary_key=True),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("answer", sa.Text),
    sa.Column("margin", sa.Float, nullable=False),
    sa.Column("observed", sa.Float),
    sa.Column("event", sa.String(64), nullable=False),
)
_ABOUT = sa.Table(
    "radar_about",
    _METADATA,
    sa.Column("name", sa.String(32), primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)


class StaleObservationError(ValueError):
    """An observation is older than the newest one of its question; the belief is untouched."""


@dataclasses.dataclass(frozen=True)
class Remembered:
    """What a store knows of a question.

    Attributes:
        state: the memory.
        answer: the last final answer, None where it abstained.
        margin: its margin.
        observed: when, as a number, or None.
        event: SHA-256 of the last observation.
    """

    state: PaperState | CampaignState
    answer: str | None
    margin: float
    observed: float | None
    event: str


class BeliefStore:
    """Beliefs by question key.

    Args:
        place: a path of an SQLite file, an SQLAlchemy URL, or None for a store in memory.
        scorer: the name of the judge of agreement that made the beliefs.
        memory: ``campaign`` or ``paper``.

    Raises:
        ValueError: the store was made with another judge, memory or schema; or it is no database,
            or an SQLite file of something else, which is left as it is.
        FileNotFoundError: there is no such folder.
        ConnectionError: the database does not answer.
    """

    def __init__(
        self,
        place: str | os.PathLike[str] | None = None,
        *,
        scorer: str = "values",
        memory: str = "campaign",
    ) -> None:
        self._engine = _engine(place)
        self._place = "memory" if place is None else _shown(self._engine, place)
        self.about = {"schema": str(SCHEMA), "memory": memory, "scorer": scorer}
        with self._one_line():
            self._bind()

    def check(self, *, scorer: str, memory: str) -> None:
        """Refuse a judge or memory whose beliefs are not these.

        Raises:
            ValueError: it is another one.
        """
        _compare(self._place, self.about, {"memory": memory, "scorer": scorer})

    def get(self, key: str) -> Remembered | None:
        """What is known of a question, or None."""
        query = sa.select(_BELIEFS).where(_BELIEFS.c.question_key == key)
        with self._one_line(), self._engine.connect() as connection:
            row = connection.execute(query).mappings().first()
        if row is None:
            return None
        state = from_plain(json.loads(row["state"]))
        return Remembered(state, row["answer"], row["margin"], row["observed"], row["event"])

    def put(self, key: str, known: Remembered, *, after: str | None = None) -> bool:
        """Write what is known of a question, in one transaction.

        Args:
            key: the question's key.
            known: the new row.
            after: the event of the row that the new one was made from, None where there was none.

        Returns:
            False, and nothing is written, if another writer changed the row meanwhile.

        Raises:
            StaleObservationError: a newer observation got there first.
        """
        values = {
            "state": json.dumps(to_plain(known.state), ensure_ascii=False),
            "answer": known.answer,
            "margin": known.margin,
            "observed": known.observed,
            "event": known.event,
        }
        here = _BELIEFS.c.question_key == key
        with self._one_line(), self._engine.begin() as connection:
            before = connection.execute(
                sa.select(_BELIEFS.c.observed, _BELIEFS.c.event).where(here).with_for_update()
            ).first()
            if before is not None and before.event == known.event:
                return False  # another worker was given the same observation, and was quicker
            if before is not None:
                refuse_stale(key, before.observed, known.observed)
            if (before.event if before is not None else None) != after:
                return False
            if before is None:
                connection.execute(sa.insert(_BELIEFS).values(question_key=key, **values))
            else:
                connection.execute(sa.update(_BELIEFS).where(here).values(**values))
            return True

    def __len__(self) -> int:
        with self._engine.connect() as connection:
            return int(connection.scalar(sa.select(sa.func.count()).select_from(_BELIEFS)) or 0)

    def bytes_of(self, key: str) -> int:
        """Bytes of a question's row: its key and columns as stored (numbers eight each)."""
        query = sa.select(_BELIEFS).where(_BELIEFS.c.question_key == key)
        with self._engine.connect() as connection:
            row = connection.execute(query).first()
        return sum(len(v.encode()) if isinstance(v, str) else 8 for v in row or ())

    def close(self) -> None:
        """Let go of the file."""
        self._engine.dispose()

    @contextlib.contextmanager
    def _one_line(self) -> Iterator[None]:
        """What a database says, in one line that names the store and shows no password."""
        try:
            yield
        except DBAPIError as error:
            said = " ".join(str(error.orig).split())
            lost = self._engine.dialect.name != "sqlite" or "locked" in said or "full" in said
            if isinstance(error, OperationalError) and lost:
                raise ConnectionError(f"belief store {self._place!r}: {said}") from None
            raise ValueError(f"{self._place!r} is no belief store: {said}") from None

    def _bind(self) -> None:
        """Make the tables in an empty place; in another, look whose they are first."""
        names = set(sa.inspect(self._engine).get_table_names())
        sqlite = self._engine.dialect.name == "sqlite"
        if sqlite and names and not {_BELIEFS.name, _ABOUT.name} <= names:
            raise ValueError(
                f"{self._place!r} is an SQLite file of something else (tables "
                f"{', '.join(sorted(names)[:5])}); give the name of a new file"
            )
        _METADATA.create_all(self._engine)
        with self._engine.begin() as connection:
            found = {row.name: row.value for row in connection.execute(sa.select(_ABOUT))}
            if not found:
                rows = [{"name": name, "value": value} for name, value in self.about.items()]
                connection.execute(sa.insert(_ABOUT), rows)
        if found:
            _compare(self._place, found, self.about)
        if sqlite:
            _write_ahead(self._engine)


def _compare(place: str, found: dict[str, str], wanted: dict[str, str]) -> None:
    for name, value in wanted.items():
        if found.get(name) == value:
            continue
        how = {
            "scorer": f"or `armillary radar migrate STORE --scorer {value}`",
            "memory": f"or run with the memory {found.get(name)!r} (--mode)",
        }.get(name, "which this version then makes")
        raise ValueError(
            f"store {place!r} has {name} {found.get(name)!r}, this run has {value!r}: take another "
            f"store, {how}"
        )


def rebind(place: str | os.PathLike[str], *, scorer: str | None = None) -> int:
    """Let a store's beliefs count for another judge of agreement.

    Its answers stay as they are; the new judge decides which of them are the same from now on.

    Args:
        place: a path or URL of a store that exists.
        scorer: the new judge's name.

    Returns:
        How many beliefs the store holds.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no store of this schema.
    """
    if "://" not in os.fspath(place) and not os.path.isfile(place):
        raise FileNotFoundError(f"no belief store {os.fspath(place)!r}")
    engine = _engine(place)
    try:
        with engine.begin() as connection:
            found = {row.name: row.value for row in connection.execute(sa.select(_ABOUT))}
            if found.get("schema") != str(SCHEMA):
                raise ValueError(
                    f"the store's schema is {found.get('schema')!r}; this version reads {SCHEMA} "
                    "only, start a new store"
                )
            if scorer is not None:
                change = sa.update(_ABOUT).where(_ABOUT.c.name == "scorer").values(value=scorer)
                connection.execute(change)
            count = connection.scalar(sa.select(sa.func.count()).select_from(_BELIEFS))
    except DBAPIError as error:
        said = " ".join(str(error.orig).split())
        raise ValueError(f"{_shown(engine, place)!r} is no belief store: {said}") from None
    finally:
        engine.dispose()
    return int(count or 0)


def refuse_stale(key: str, newest: float | None, observed: float | None) -> None:
    """Raise where an observation is older than the newest, or lacks the time that others have.

    Raises:
        StaleObservationError: see above.
    """
    if newest is None:
        return
    if observed is not None and unlike(newest, observed):
        raise StaleObservationError(
            f"question {key!r}: time {observed:g} after {newest:g} mixes years or dates with Unix "
            "times; give one kind (the belief is untouched)"
        )
    if observed is None or observed < newest:
        told = "no time" if observed is None else f"time {observed:g}"
        raise StaleObservationError(
            f"question {key!r}: an observation with {told} came after one of time {newest:g}; feed "
            "observations in the order of their time (the belief is untouched)"
        )


def _engine(place: str | os.PathLike[str] | None) -> sa.Engine:
    if place is None:
        return sa.create_engine(
            "sqlite://", poolclass=sa.StaticPool, connect_args={"check_same_thread": False}
        )
    text = os.fspath(place)
    if "://" in text:
        engine = _engine_of_url(text)
    else:
        folder = os.path.dirname(text)
        if folder and not os.path.isdir(folder):
            raise FileNotFoundError(f"no folder {folder!r} for the belief store {text!r}")
        engine = sa.create_engine(sa.URL.create("sqlite", database=text))
    if engine.dialect.name == "sqlite":
        sa_event.listen(engine, "connect", _prepare_sqlite)
        sa_event.listen(engine, "begin", _begin_at_once)
    return engine


def _engine_of_url(text: str) -> sa.Engine:
    scheme = text.partition("://")[0]
    try:
        return sa.create_engine(text)
    except ArgumentError:  # an unknown dialect is one too
        raise ValueError(
            f"store: no database of the kind {scheme!r} is known; give a path, or an SQLAlchemy "
            "URL such as postgresql+psycopg://user@host/name"
        ) from None


def _shown(engine: sa.Engine, place: str | os.PathLike[str]) -> str:
    """A path as it was given, a URL without its password."""
    text = os.fspath(place)
    return engine.url.render_as_string(hide_password=True) if "://" in text else text


def _prepare_sqlite(connection: Any, record: Any) -> None:
    """Patience with other writers, and transactions that are ours to begin."""
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA busy_timeout=10000")
    cursor.close()


def _write_ahead(engine: sa.Engine) -> None:
    """A write-ahead log, kept in the file; where the file system has none, the older journal."""
    connection = engine.raw_connection()
    try:
        cursor = connection.cursor()
        with contextlib.suppress(Exception):
            cursor.execute("PRAGMA journal_mode=WAL")
        cursor.close()
    finally:
        connection.close()


def _begin_at_once(connection: sa.Connection) -> None:
    """Take the write lock at the start: a read that turns into a write could not be retried."""
    connection.exec_driver_sql("BEGIN IMMEDIATE")
