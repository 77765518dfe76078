"""Beliefs on disk: one row a question, whatever the number of steps; never a document.

SQLite by default (a path), any SQL database by SQLAlchemy URL. An observation is written by one
upsert in one transaction, so that a process that dies leaves the belief before or after it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import json
import math
import os
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event as sa_event
from sqlalchemy.exc import DatabaseError

from armillary.context.radar.memory import CampaignState, PaperState, from_plain, to_plain

SCHEMA = 1
#: When something was observed: a number (a year, a Unix time), an ISO date or date-time, or a date.
Time = int | float | str | dt.date

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
        ValueError: the store was made with another judge, memory or schema.
    """

    def __init__(
        self,
        place: str | os.PathLike[str] | None = None,
        *,
        scorer: str = "values",
        memory: str = "campaign",
    ) -> None:
        self._engine = _engine(place)
        self._place = "memory" if place is None else self._engine.url.render_as_string()
        self._bind({"schema": str(SCHEMA), "memory": memory, "scorer": scorer})

    def get(self, key: str) -> Remembered | None:
        """What is known of a question, or None."""
        query = sa.select(_BELIEFS).where(_BELIEFS.c.question_key == key)
        with self._engine.connect() as connection:
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
        with self._engine.begin() as connection:
            before = connection.execute(
                sa.select(_BELIEFS.c.observed, _BELIEFS.c.event).where(here).with_for_update()
            ).first()
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

    def _bind(self, wanted: dict[str, str]) -> None:
        _METADATA.create_all(self._engine)
        with self._engine.begin() as connection:
            found = {row.name: row.value for row in connection.execute(sa.select(_ABOUT))}
            if not found:
                rows = [{"name": name, "value": value} for name, value in wanted.items()]
                connection.execute(sa.insert(_ABOUT), rows)
        for name, value in wanted.items():
            if found and found.get(name) != value:
                raise ValueError(
                    f"store {self._place!r} has {name} {found.get(name)!r}, this run has {value!r}:"
                    f" take another store, or `armillary radar migrate STORE --{name} {value}`"
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
    except DatabaseError as error:
        raise ValueError(f"{os.fspath(place)!r} is no belief store: {error.orig}") from error
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
    if observed is None or observed < newest:
        told = "no time" if observed is None else f"time {observed:g}"
        raise StaleObservationError(
            f"question {key!r}: an observation with {told} came after one of time {newest:g}; feed "
            "observations in the order of their time (the belief is untouched)"
        )


def as_number(time: Time | None) -> float | None:
    """A time as a number: numbers and bare years as they are, dates as years with a fraction.

    Raises:
        ValueError: it is no number and no ISO date.
    """
    if time is None:
        return None
    if isinstance(time, str):
        with contextlib.suppress(ValueError):
            time = float(time)
    if isinstance(time, (int, float)):
        if not math.isfinite(time):
            raise ValueError(f"time={time}: give a finite number or a date")
        return float(time)
    if isinstance(time, str):
        try:
            time = dt.datetime.fromisoformat(time)
        except ValueError:
            raise ValueError(
                f"time={time!r}: give a number, a year or an ISO date such as 2023-01-31"
            ) from None
    moment = time if isinstance(time, dt.datetime) else dt.datetime(*time.timetuple()[:3])
    if moment.tzinfo is not None:
        moment = moment.astimezone(dt.UTC).replace(tzinfo=None)
    start, end = dt.datetime(moment.year, 1, 1), dt.datetime(moment.year + 1, 1, 1)
    return moment.year + (moment - start) / (end - start)


def _engine(place: str | os.PathLike[str] | None) -> sa.Engine:
    if place is None:
        return sa.create_engine(
            "sqlite://", poolclass=sa.StaticPool, connect_args={"check_same_thread": False}
        )
    text = os.fspath(place)
    if "://" in text:
        engine = sa.create_engine(text)
    else:
        folder = os.path.dirname(text)
        if folder and not os.path.isdir(folder):
            raise FileNotFoundError(f"no folder {folder!r} for the belief store {text!r}")
        engine = sa.create_engine(sa.URL.create("sqlite", database=text))
    if engine.dialect.name == "sqlite":
        sa_event.listen(engine, "connect", _prepare_sqlite)
        sa_event.listen(engine, "begin", _begin_at_once)
    return engine


def _prepare_sqlite(connection: Any, record: Any) -> None:
    """A write-ahead log, patience with other writers, and transactions that are ours to begin."""
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA busy_timeout=10000")
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.close()


def _begin_at_once(connection: sa.Connection) -> None:
    """Take the write lock at the start: a read that turns into a write could not be retried."""
    connection.exec_driver_sql("BEGIN IMMEDIATE")
