"""The store's SQLite file: where it lies, what may happen to it, and what came before."""

from __future__ import annotations

import dataclasses
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from armillary.evidence import schema, sqlite
from armillary.evidence.shapes import Row
from armillary.evidence.store import Store, StoreFull, StoreUnavailable

ROW = Row("m", "e", "quick", "case", 0, "ours", metrics={"error": 1.5})


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "s.sqlite") as opened:
        yield opened


# ---- where it lies -----------------------------------------------------------------------------


def test_the_default_lies_in_the_users_data_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("ARMILLARY_HOME", str(tmp_path / "home"))
    with Store() as store:
        assert store.path == tmp_path / "home" / "data" / "evidence.sqlite"
        assert store.path.is_file()


@pytest.mark.parametrize(
    "name",
    [
        "with space.sqlite", "100% # ? & = odd.sqlite", "emoji 🪐.sqlite", "x" * 240 + ".sqlite",
        "folder/made/at once.sqlite", "'quotes\".sqlite",
    ],
)  # fmt: skip
def test_any_file_name_will_do_and_reads_back(tmp_path, name):
    with Store(tmp_path / name) as store:
        store.put("f", [ROW])
    assert (tmp_path / name).is_file()
    with Store(tmp_path / name, read_only=True) as store:
        assert store.rows("f", "e") == [ROW]


def test_a_url_names_the_same_file_as_its_path(tmp_path):
    with Store(f"sqlite:///{tmp_path}/s.sqlite") as store:
        store.put("f", [ROW])
    with Store(tmp_path / "s.sqlite") as store:
        assert store.rows("f", "e") == [ROW]


@pytest.mark.parametrize(
    "url",
    ["", "sqlite://", "sqlite:///:memory:", "nothing://x", "mysql://me:word@h/db", "://"],
)
def test_urls_that_are_no_store_are_refused_without_their_password(url):
    with pytest.raises(ValueError, match="sqlite:///PATH") as caught:
        Store(url)
    assert "word@" not in str(caught.value)


def test_a_folder_is_refused_with_a_file_name_that_would_do(tmp_path):
    with pytest.raises(IsADirectoryError, match=r"evidence\.sqlite"):
        Store(tmp_path)


def test_a_folder_that_cannot_be_made_names_the_options(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable, match=r"--store.*ARMILLARY_HOME"):
        Store(tmp_path / "file" / "s.sqlite")


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs /proc")
def test_a_folder_that_nobody_can_write_names_the_options():
    with pytest.raises(StoreUnavailable, match=r"--store.*ARMILLARY_HOME"):
        Store("/proc/self/s.sqlite")


def test_reading_wants_a_store_that_is_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="armillary bench"):
        Store(tmp_path / "none.sqlite", read_only=True)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "empty.sqlite").touch()
    with pytest.raises(FileNotFoundError, match="holds nothing yet"):
        Store(tmp_path / "empty.sqlite", read_only=True)


def test_a_file_that_is_something_else_is_left_alone(tmp_path):
    text = tmp_path / "notes.txt"
    text.write_text("my notes, many of them\n" * 100)
    with pytest.raises(ValueError, match="not a readable store"):
        Store(text)
    assert text.read_text() == "my notes, many of them\n" * 100
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE people (name TEXT)")
    with pytest.raises(ValueError, match="no store of Armillary"):
        Store(other)
    with sqlite3.connect(other) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master").fetchall()
    assert tables == [("people",)]


def _journal(path: Path) -> str:
    with sqlite3.connect(path) as connection:
        return connection.execute("PRAGMA journal_mode").fetchone()[0]


def test_the_journal_is_wal_on_a_local_disk_and_not_over_a_network(tmp_path, monkeypatch):
    Store(tmp_path / "local.sqlite").close()
    assert _journal(tmp_path / "local.sqlite") == "wal"
    monkeypatch.setattr(sqlite, "on_network", lambda path: True)
    with Store(tmp_path / "remote.sqlite") as store:
        store.put("f", [ROW])
        assert store.rows("f", "e") == [ROW]
    assert _journal(tmp_path / "remote.sqlite") == "delete"
    with Store(tmp_path / "local.sqlite"):  # a home that has moved to a network
        pass
    assert _journal(tmp_path / "local.sqlite") == "delete"


@pytest.mark.parametrize(
    ("folder", "remote"),
    [("/net/home", True), ("/net/home/me", True), ("/net/homestead", False), ("/srv/a b", True)],
)
def test_network_mounts_are_recognised(monkeypatch, folder, remote):
    mounts = "\n".join(
        ("/dev/a / ext4 rw 0 0", "h:/x /net/home nfs4 rw 0 0", "h:/y /srv/a\\040b cifs rw 0 0")
    )
    monkeypatch.setattr(Path, "read_text", lambda *a, **k: mounts)
    assert sqlite.on_network(Path(folder) / "s.sqlite") is remote


# ---- schemas -----------------------------------------------------------------------------------

#: What the first version wrote.
SCHEMA_1 = """
CREATE TABLE meta (name VARCHAR(64) NOT NULL, value TEXT NOT NULL, PRIMARY KEY (name));
CREATE TABLE runs (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, method TEXT NOT NULL,
    profile VARCHAR(16) NOT NULL, whole BOOLEAN NOT NULL, finished BOOLEAN NOT NULL,
    seconds FLOAT NOT NULL, plan TEXT NOT NULL, environment TEXT NOT NULL, claims TEXT NOT NULL);
CREATE INDEX runs_by_method ON runs (method, profile);
CREATE TABLE cells (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, fingerprint VARCHAR(64) NOT NULL,
    method TEXT NOT NULL, experiment TEXT NOT NULL, profile VARCHAR(16) NOT NULL,
    case_name TEXT NOT NULL, seed BIGINT NOT NULL, contender TEXT NOT NULL,
    repeat INTEGER NOT NULL, status VARCHAR(16) NOT NULL, kind TEXT NOT NULL,
    reason TEXT NOT NULL, seconds FLOAT NOT NULL, CONSTRAINT one_row_a_measurement
    UNIQUE (fingerprint, experiment, case_name, seed, contender, repeat));
CREATE INDEX cells_by_method ON cells (method, experiment);
CREATE TABLE metrics (
    cell INTEGER NOT NULL, name VARCHAR(256) NOT NULL, value FLOAT NOT NULL,
    PRIMARY KEY (cell, name), FOREIGN KEY(cell) REFERENCES cells (id) ON DELETE CASCADE);
INSERT INTO meta VALUES ('schema_version', '1');
INSERT INTO cells VALUES (1, 'f', 'm', 'e', 'quick', 'case', 0, 'ours', 0, 'ok', '', '', 0.0);
INSERT INTO metrics VALUES (1, 'error', 1.5);
INSERT INTO runs VALUES (1, 'm', 'quick', 1, 1, 2.0, '{"e": {"fingerprint": "f", "seeds": [0]}}',
    '{"method": "m", "experiments": {"e": {"cases": [{"name": "case"}],
      "contenders": [{"name": "ours"}]}}}', '[{"claim": "c", "verdict": "holds"}]');
"""


@pytest.fixture
def old(tmp_path):
    path = tmp_path / "old.sqlite"
    connection = sqlite3.connect(path)
    connection.executescript(SCHEMA_1)
    connection.close()
    return path


def _schema(path: Path) -> str:
    with sqlite3.connect(path) as connection:
        return connection.execute("SELECT value FROM meta").fetchone()[0]


def test_a_store_of_the_first_version_is_brought_up_to_date(old):
    with Store(old) as store:
        assert store.rows("f", "e") == [ROW]
        (bundle,) = store.bundles()
        assert bundle.claims == [{"claim": "c", "verdict": "holds"}]
        assert bundle.rows == [ROW]
        store.put_seconds("f", "m", "e", "quick", "case", 0, 2.0)
        assert store.typical_seconds("m", "e", "quick") == {"case": 2.0}
    assert _schema(old) == str(schema.SCHEMA_VERSION)


def test_a_store_of_the_first_version_is_read_as_it_is(old):
    before = old.read_bytes()
    with Store(old, read_only=True) as store:
        assert [b.rows for b in store.bundles()] == [[ROW]]
        assert store.typical_seconds("m", "e", "quick") == {}
    assert old.read_bytes() == before


def test_a_migration_that_is_interrupted_changes_nothing(old, monkeypatch):
    def broken(connection):
        schema.add_groups(connection)
        raise RuntimeError("power cut")

    with monkeypatch.context() as patch:
        patch.setitem(schema.MIGRATIONS, 1, broken)
        with pytest.raises(RuntimeError):
            Store(old)
    assert _schema(old) == "1"
    with sqlite3.connect(old) as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    assert "groups" not in tables
    with Store(old) as store:
        assert store.rows("f", "e") == [ROW]


def test_a_fresh_store_and_a_migrated_one_have_the_same_tables(old, tmp_path):
    Store(old).close()
    Store(tmp_path / "new.sqlite").close()

    def columns(path):
        with sqlite3.connect(path) as connection:
            return {
                table: [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
                for table in ("meta", "runs", "cells", "metrics", "groups")
            }

    assert columns(old) == columns(tmp_path / "new.sqlite")


def test_a_store_of_a_newer_version_is_refused_and_left_alone(old):
    with sqlite3.connect(old) as connection:
        connection.execute("UPDATE meta SET value = '99'")
    with pytest.raises(ValueError, match=r"schema 99.*pip install -U"):
        Store(old)
    assert _schema(old) == "99"


# ---- full disks, read-only folders -------------------------------------------------------------


def _limit_pages(store: Store) -> None:
    """Let the file grow no further: what SQLite says then is what it says on a full disk."""
    with store._database.engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")


def test_a_full_disk_loses_nothing_that_was_stored(store):
    store.put("f", [ROW])
    _limit_pages(store)
    big = [
        dataclasses.replace(ROW, seed=s, reason="x" * 4000, status="failed", metrics={})
        for s in range(1, 50)
    ]
    with pytest.raises(StoreFull, match=r"make room.*--store"):
        store.put("f", big)
    assert store.rows("f", "e") == [ROW]


@pytest.fixture
def small_disk(tmp_path):
    """A disk of one megabyte, where this user may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_disk_that_really_fills_up_loses_nothing(small_disk):
    path = small_disk / "s.sqlite"
    stored: list[Row] = []

    def fill(store: Store) -> None:
        while len(stored) < 10_000:
            row = dataclasses.replace(ROW, seed=len(stored), reason="x" * 5000)
            store.put("f", [row])
            stored.append(row)

    with Store(path) as store, pytest.raises(StoreFull):
        fill(store)
    assert 10 < len(stored) < 10_000
    with Store(path, read_only=True) as store:
        assert store.rows("f", "e") == stored


def test_a_store_in_a_read_only_folder_can_be_read_and_not_written(small_disk):
    path = small_disk / "s.sqlite"
    with Store(path) as store:
        store.put("f", [ROW])
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with Store(path, read_only=True) as store:
        assert store.rows("f", "e") == [ROW]
    with pytest.raises(StoreUnavailable, match="--store"):
        Store(path)
    with pytest.raises(StoreUnavailable, match="--store"):
        Store(small_disk / "new.sqlite")


def test_the_log_of_a_killed_writer_is_read_where_nothing_can_be_written(small_disk):
    path = small_disk / "s.sqlite"
    code = WRITER + "    import os; os.kill(os.getpid(), 9)\n"
    process = _start(code, path, "first", 5)
    process.communicate(timeout=60)
    assert process.returncode == -9
    assert path.with_name("s.sqlite-wal").stat().st_size > 0
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with Store(path, read_only=True) as store:
        assert len(store.rows("f", "e")) == 10


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


def test_many_processes_create_the_store_at_once(tmp_path):
    path = tmp_path / "new folder" / "s.sqlite"
    _succeed(*(_start(WRITER, path, f"writer {i}", 3) for i in range(6)))
    with Store(path) as store:
        assert len(store.rows("f", "e")) == 6 * 3 + 3
    assert _schema(path) == str(schema.SCHEMA_VERSION)
