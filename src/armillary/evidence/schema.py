"""The tables of the store, their version, and the way from one version to the next."""

from __future__ import annotations

import sqlalchemy as sa

SCHEMA_VERSION = 2

_KEY = ("fingerprint", "experiment", "case_name", "seed", "contender", "repeat")
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


def add_groups(connection: sa.Connection) -> None:
    """Schema 1 knew no seconds of whole groups."""
    groups.create(connection, checkfirst=True)


#: What brings a store from a schema to the next one.
MIGRATIONS = {1: add_groups}


def bring_up_to_date(connection: sa.Connection) -> None:
    """Create the tables, or migrate older ones, within the caller's transaction."""
    version = version_of(connection)
    if version == 0:
        metadata.create_all(connection, checkfirst=True)
    for step in range(max(version, 1), SCHEMA_VERSION):
        MIGRATIONS[step](connection)
    connection.execute(meta.delete().where(meta.c.name == "schema_version"))
    connection.execute(meta.insert().values(name="schema_version", value=str(SCHEMA_VERSION)))


def version_of(connection: sa.Connection) -> int:
    """The schema of the store: 0 for an empty one.

    Raises:
        ValueError: the database belongs to something else, or to a newer version.
    """
    tables = set(sa.inspect(connection).get_table_names())
    if not tables:
        return 0
    if "meta" not in tables or "cells" not in tables:
        raise ValueError(
            "this database is no store of Armillary (it has other tables): give another with "
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
