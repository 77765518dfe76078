"""The PostgreSQL database behind a store that a team shares, and its complaints in plain words.

Writers take turns as they do with SQLite: each transaction that writes first takes one advisory
lock of the database, so that none decides by what another is about to change.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event, exc

from armillary.errors import require
from armillary.evidence.sqlite import BUSY_SECONDS, StoreFull, StoreUnavailable

#: The key of the lock of writers: any number that nobody else uses.
_WRITERS = 0x41524D494C

_CONNECT_SECONDS = 10
#: Classes of SQLSTATE: the connection, the server's resources, somebody's intervention.
_LOST = ("08", "57P")
_FULL = ("53100", "53200")
_REFUSED = ("28", "3D", "42501", "25006")


class StoreLost(ConnectionError):
    """The server of the store went away; what it had confirmed is intact."""


class PostgresDatabase:
    """A PostgreSQL database and its transactions.

    Args:
        url: a URL for which `is_postgres` holds. What it leaves out (password, host, …) is taken
            from the environment and the password file, as by any client of PostgreSQL.
        read_only: open no transaction that could write.

    Raises:
        MissingExtra: the driver is not installed.
        ValueError: the URL names another driver, or no database.
    """

    path = None

    def __init__(self, url: str, read_only: bool) -> None:
        parsed = parse(url)
        require("psycopg", what="a PostgreSQL store", extra="postgres")
        self.name = _without_secrets(parsed)
        self._secrets = [s for s in (parsed.password, *_query_secrets(parsed)) if s]
        self._reached = False
        settings: dict[str, Any] = {"connect_timeout": _CONNECT_SECONDS} | dict(parsed.query)
        settings.setdefault("application_name", "armillary")
        settings.setdefault("tcp_user_timeout", "30000")
        self.engine = sa.create_engine(
            parsed.set(query={}), connect_args=settings, pool_pre_ping=True, hide_parameters=True
        )
        _configure(self.engine, read_only)

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()

    @contextlib.contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """One transaction: all of it is stored, or none."""
        with self._explained(), self.engine.connect() as connection, connection.begin():
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_WRITERS)))
            yield connection

    @contextlib.contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A view of the store as it is at one moment."""
        with (
            self._explained(),
            self.engine.connect().execution_options(
                isolation_level="REPEATABLE READ"
            ) as connection,
            connection.begin(),
        ):
            yield connection

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """PostgreSQL's complaints in words that say what to do."""
        try:
            yield
            self._reached = True
        except exc.DBAPIError as error:
            raise self._plain(error) from error

    def _plain(self, error: exc.DBAPIError) -> Exception:
        state = getattr(error.orig, "sqlstate", None) or ""
        why = self._said(error)
        if state.startswith(_FULL):
            return StoreFull(
                f"the store {self.name} could not be written ({why}): make room on its server and "
                "run again: what is stored is kept"
            )
        if state.startswith(_REFUSED):
            return StoreUnavailable(
                f"the store {self.name} refuses ({why}): check user, password and rights, or name "
                "another with --store"
            )
        if state == "55P03":
            return StoreUnavailable(
                f"the store {self.name} was busy for {BUSY_SECONDS:.0f} s: another run holds its "
                "lock; run again later"
            )
        if not isinstance(error, exc.OperationalError) and not state.startswith(_LOST):
            return error
        if self._reached:
            return StoreLost(
                f"the connection to the store {self.name} was lost ({why}): what is stored is "
                "kept, and the same command goes on from there"
            )
        return StoreUnavailable(
            f"the store {self.name} cannot be reached ({why}): check that the server runs and the "
            "URL, or name another with --store"
        )

    def _said(self, error: exc.DBAPIError) -> str:
        """The driver's own words on one line, without a password."""
        text = " ".join(str(error.orig).split())
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text[:300]


def is_postgres(url: Any) -> bool:
    """Whether a store is named by a URL of PostgreSQL."""
    scheme = url.partition("://")[0] if isinstance(url, str) and "://" in url else ""
    return scheme.partition("+")[0] in ("postgresql", "postgres")


def parse(url: str) -> sa.URL:
    """The URL with the driver that is used.

    Raises:
        ValueError: it is not understood, names another driver or no database.
    """
    accepted = "give postgresql://USER@HOST/DATABASE"
    scheme, _, rest = url.partition("://")
    driver = scheme.partition("+")[2]
    if driver not in ("", "psycopg"):
        raise ValueError(f"store: the driver {driver!r} is not supported: {accepted}")
    try:
        parsed = sa.make_url(f"postgresql+psycopg://{rest}")
    except (exc.ArgumentError, ValueError):
        raise ValueError(f"store: this PostgreSQL URL is not understood: {accepted}") from None
    if not parsed.database:
        raise ValueError(f"store={_without_secrets(parsed)!r} names no database: {accepted}")
    return parsed


def _without_secrets(url: sa.URL) -> str:
    """The URL for messages: no user, no password, no options."""
    return sa.URL.create(
        "postgresql", host=url.host, port=url.port, database=url.database
    ).render_as_string()


def _query_secrets(url: sa.URL) -> list[str]:
    values = [v for k, v in url.query.items() if "pass" in k.lower()]
    return [value for value in values if isinstance(value, str)]


def _configure(engine: sa.Engine, read_only: bool) -> None:
    """Limit how long a connection waits, and how long one that was left open may block others."""

    @event.listens_for(engine, "connect")
    def _connected(connection: Any, _record: Any) -> None:
        milliseconds = int(1000 * BUSY_SECONDS)
        with connection.cursor() as cursor:
            cursor.execute(f"SET lock_timeout = {milliseconds}")
            cursor.execute(f"SET idle_in_transaction_session_timeout = {5 * milliseconds}")
            if read_only:
                cursor.execute("SET default_transaction_read_only = on")
        connection.commit()
