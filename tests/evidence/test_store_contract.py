"""What every store must do, whichever database holds it."""

from __future__ import annotations

import dataclasses
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from armillary.evidence import schema
from armillary.evidence.shapes import Row
from armillary.evidence.store import Store

ROW = Row("m", "e", "quick", "case", 0, "ours", metrics={"error": 1.5})


@pytest.fixture
def store(store_url):
    with Store(store_url) as opened:
        yield opened


def _ask(store: Store, question: str) -> list[tuple]:
    """What the database itself says."""
    with store._database.engine.connect() as connection:
        return [tuple(line) for line in connection.exec_driver_sql(question)]


FINGERPRINTS: list[str] = []
names = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x00"), min_size=1)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    rows=st.lists(
        st.builds(
            Row,
            method=st.just("m"),
            experiment=st.just("e"),
            profile=st.just("quick"),
            case=names,
            seed=st.integers(0, 2**62),
            contender=names,
            repeat=st.integers(0, 9),
            metrics=st.dictionaries(
                names, st.floats(allow_nan=False, allow_infinity=False), max_size=3
            ),
            seconds=st.floats(0, 1e6),
        ),
        max_size=6,
        unique_by=lambda r: (r.case, r.seed, r.contender, r.repeat),
    )
)
def test_rows_come_out_as_they_went_in_by_their_keys(store, rows):
    FINGERPRINTS.append(f"f{len(FINGERPRINTS)}")  # each example in rows of its own
    store.put(FINGERPRINTS[-1], rows)
    found = store.rows(FINGERPRINTS[-1], "e")
    assert found == sorted(rows, key=lambda r: (r.case, r.seed, r.contender, r.repeat))


def test_a_key_keeps_its_first_measurement(store):
    store.put("f", [ROW])
    store.put("f", [dataclasses.replace(ROW, metrics={"error": 9.0})])
    store.put("f", [dataclasses.replace(ROW, status="failed", kind="died", metrics={})])
    assert store.rows("f", "e") == [ROW]


def test_another_fingerprint_is_another_key(store):
    other = dataclasses.replace(ROW, metrics={"error": 9.0})
    store.put("f", [ROW])
    store.put("g", [other])
    assert store.rows("f", "e") == [ROW]
    assert store.rows("g", "e") == [other]


def test_not_run_gives_way_to_a_measurement_and_never_replaces_one(store):
    absent = dataclasses.replace(ROW, status="not run", kind="extra", reason="x", metrics={})
    store.put("f", [absent])
    store.put("f", [dataclasses.replace(absent, reason="y")])
    assert [r.reason for r in store.rows("f", "e")] == ["y"]
    store.put("f", [ROW])
    store.put("f", [absent])
    assert store.rows("f", "e") == [ROW]


def test_a_group_is_replaced_whole(store):
    old = [dataclasses.replace(ROW, repeat=i, metrics={"error": float(i)}) for i in range(5)]
    other = dataclasses.replace(ROW, seed=1)
    store.put("f", [*old, other])
    new = [dataclasses.replace(ROW, repeat=i, metrics={"error": 10.0 + i}) for i in range(2)]
    store.put("f", new, replace_group=True)
    assert store.rows("f", "e") == [*new, other]


@pytest.mark.parametrize(
    ("value", "kind"), [(math.nan, "nan"), (math.inf, "inf"), (-math.inf, "inf")]
)
def test_what_is_not_finite_is_stored_as_a_failure(store, value, kind):
    store.put("f", [dataclasses.replace(ROW, metrics={"error": value, "fine": 1.0})])
    (row,) = store.rows("f", "e")
    assert (row.status, row.kind, row.metrics) == ("failed", kind, {})


def test_a_transaction_that_fails_leaves_nothing(store):
    bad = dataclasses.replace(ROW, seed=1, metrics={"error": object()})  # pyright: ignore
    with pytest.raises(TypeError):
        store.put("f", [ROW, bad])
    assert store.rows("f", "e") == []


def test_seeds_can_be_picked(store):
    rows = [dataclasses.replace(ROW, seed=seed) for seed in range(6)]
    store.put("f", rows)
    assert store.rows("f", "e", [1, 4]) == [rows[1], rows[4]]
    assert store.rows("f", "e", []) == []


def test_an_unfinished_run_leaves_a_trace_but_no_bundle(store):
    store.begin_run("m", "quick", plan={}, environment={"method": "m"})
    assert store.bundles() == []
    assert store.bundle("m", "quick") is None
    assert _ask(store, "SELECT method, finished FROM runs") == [("m", False)]


def test_seconds_of_groups_are_averaged_by_case(store):
    for seed, seconds in enumerate((1.0, 3.0)):
        store.put_seconds("f", "m", "e", "quick", "case", seed, seconds)
    store.put_seconds("f", "m", "e", "quick", "case", 1, 5.0)
    assert store.typical_seconds("m", "e", "quick") == {"case": 3.0}
    assert store.typical_seconds("m", "e", "full") == {}


# ---- several processes at once -----------------------------------------------------------------

WRITER = """
import sys
from armillary.evidence.shapes import Row
from armillary.evidence.store import Store
path, who, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with Store(path) as store:
    for seed in range(count):
        store.put("f", [Row("m", "e", "quick", "case", seed, who, metrics={"a": seed, "b": 1.0}),
                        Row("m", "e", "quick", "case", seed, "both", metrics={"a": seed})])
"""

READER = """
import sys
from armillary.evidence.store import Store
path, count = sys.argv[1], int(sys.argv[2])
with Store(path, read_only=True) as store:
    while True:
        rows = store.rows("f", "e")
        for row in rows:
            assert row.metrics["a"] == row.seed
            assert len(row.metrics) == (1 if row.contender == "both" else 2)
        seen = {r.contender: sum(x.contender == r.contender for x in rows) for r in rows}
        if len(rows) == 3 * count:
            break
"""


def _start(code: str, *arguments: object) -> subprocess.Popen:
    source = str(Path(str(schema.__file__)).parents[2])
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": source}, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def _succeed(*processes: subprocess.Popen) -> None:
    for process in processes:
        _, error = process.communicate(timeout=100)
        assert process.returncode == 0, error


def test_two_writers_and_a_reader(store_url):
    count = 60
    Store(store_url).close()
    _succeed(
        _start(WRITER, store_url, "first", count), _start(WRITER, store_url, "second", count),
        _start(READER, store_url, count),
    )  # fmt: skip
    with Store(store_url) as store:
        rows = store.rows("f", "e")
    assert len(rows) == 3 * count
    assert len({(r.seed, r.contender) for r in rows}) == 3 * count


def test_many_processes_create_the_store_at_once(store_url):
    _succeed(*(_start(WRITER, store_url, f"writer {i}", 3) for i in range(4)))
    with Store(store_url) as store:
        assert len(store.rows("f", "e")) == 4 * 3 + 3
        assert _ask(store, "SELECT value FROM meta") == [(str(schema.SCHEMA_VERSION),)]


# ---- schemas -----------------------------------------------------------------------------------


@pytest.fixture
def first_version(store_url):
    """A store as the first version made it, with a row."""
    with Store(store_url) as store:
        store.put("f", [ROW])
        with store._database.writing() as connection:
            schema.groups.drop(connection)
            connection.execute(sa.update(schema.meta).values(value="1"))
    return store_url


def test_an_older_store_is_brought_up_to_date(first_version):
    with Store(first_version) as store:
        assert store.rows("f", "e") == [ROW]
        store.put_seconds("f", "m", "e", "quick", "case", 0, 2.0)
        assert store.typical_seconds("m", "e", "quick") == {"case": 2.0}
        assert _ask(store, "SELECT value FROM meta") == [(str(schema.SCHEMA_VERSION),)]


def test_an_older_store_is_only_read(first_version):
    with Store(first_version, read_only=True) as store:
        assert store.rows("f", "e") == [ROW]
        assert store.typical_seconds("m", "e", "quick") == {}
        assert _ask(store, "SELECT value FROM meta") == [("1",)]


def test_an_interrupted_migration_changes_nothing(first_version, monkeypatch):
    def broken(connection):
        schema.add_groups(connection)
        raise RuntimeError("power cut")

    with monkeypatch.context() as patch:
        patch.setitem(schema.MIGRATIONS, 1, broken)
        with pytest.raises(RuntimeError):
            Store(first_version)
    with Store(first_version, read_only=True) as store:
        assert _ask(store, "SELECT value FROM meta") == [("1",)]
        tables = sa.inspect(store._database.engine).get_table_names()
    assert "groups" not in tables


def test_a_newer_store_is_refused_and_left_alone(store_url):
    with Store(store_url) as store, store._database.writing() as connection:
        connection.execute(sa.update(schema.meta).values(value="99"))
    with pytest.raises(ValueError, match=r"schema 99.*pip install -U"):
        Store(store_url)


def test_an_empty_database_holds_nothing_to_read(store_url):
    if "://" not in store_url:
        Path(store_url).touch()
    with pytest.raises(FileNotFoundError, match="holds nothing yet"):
        Store(store_url, read_only=True)


def test_a_store_that_is_only_read_takes_no_row(store_url):
    Store(store_url).close()
    with Store(store_url, read_only=True) as store:
        with pytest.raises(PermissionError, match="--store"):
            store.put("f", [ROW])
        assert store.rows("f", "e") == []
