"""A store on PostgreSQL: how it is named, what goes wrong with servers, and whole runs on it."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
import time

import pytest

from armillary.errors import MissingExtra
from armillary.evidence import postgres as module
from armillary.evidence.shapes import Row
from armillary.evidence.store import Store, StoreLost, StoreUnavailable

ROW = Row("m", "e", "quick", "case", 0, "ours", metrics={"error": 1.5})
SECRET = "word:1"


@pytest.fixture
def url(postgres):
    return postgres.new_database()


# ---- how it is named ---------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+psycopg", "postgres"])
def test_every_spelling_names_the_same_database(url, scheme):
    with Store(url) as store:
        store.put("f", [ROW])
    with Store(scheme + url.removeprefix("postgresql")) as store:
        assert store.rows("f", "e") == [ROW]


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ("postgresql+asyncpg://me:word:1@h/d", "driver 'asyncpg'"),
        ("postgresql://me:word:1@h:70x/d", "not understood"),
        ("postgresql://me:word%3A1@h", "names no database"),
        ("postgresql://", "names no database"),
    ],
)
def test_urls_that_name_no_store_are_refused_without_their_password(given, match):
    with pytest.raises(ValueError, match=match) as caught:
        Store(given)
    assert "postgresql://USER@HOST/DATABASE" in str(caught.value)
    assert "word" not in str(caught.value)


def test_a_missing_driver_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtra, match=r"pip install 'armillary\[postgres\]'"):
        Store("postgresql://me@h/d")


def test_options_of_the_url_reach_the_server(postgres, url):
    with postgres.connect(url.rsplit("/", 1)[1]) as connection:
        connection.execute("CREATE TABLE people (name TEXT)")
        connection.execute("CREATE SCHEMA evidence")
    with pytest.raises(ValueError, match="no store of Armillary"):
        Store(url)
    with Store(f"{url}?options=-csearch_path%3Devidence") as store:
        store.put("f", [ROW])
        assert store.rows("f", "e") == [ROW]
    with postgres.connect(url.rsplit("/", 1)[1]) as connection:
        found = connection.execute("SELECT count(*) FROM evidence.cells").fetchone()
    assert found == (1,)


# ---- what goes wrong ---------------------------------------------------------------------------


def test_a_wrong_password_is_refused_and_not_shown(postgres):
    with pytest.raises(StoreUnavailable, match="password") as caught:
        Store(postgres.url("postgres", password="wrong-word"))
    assert "wrong-word" not in str(caught.value)
    assert f"127.0.0.1:{postgres.port}/postgres" in str(caught.value)


def test_a_database_that_is_not_there_is_said(postgres):
    with pytest.raises(StoreUnavailable, match='database "nowhere" does not exist'):
        Store(postgres.url("nowhere"))


def test_a_server_that_is_not_there_is_said():
    with pytest.raises(StoreUnavailable, match=r"cannot be reached.*--store"):
        Store("postgresql://me:word@127.0.0.1:1/d")


def test_a_user_without_rights_is_told(postgres, url):
    Store(url).close()
    with postgres.connect(url.rsplit("/", 1)[1]) as connection:
        connection.execute("CREATE USER guest PASSWORD 'guest'")
        connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO guest")
    guest = re.sub(r"//armillary:[^@]*@", "//guest:guest@", url)
    with Store(guest) as store, pytest.raises(StoreUnavailable, match="permission denied"):
        store.put("f", [ROW])
    with Store(guest, read_only=True) as store:
        assert store.rows("f", "e") == []


def test_a_writer_that_waits_too_long_is_told_to_come_later(url, monkeypatch):
    monkeypatch.setattr(module, "BUSY_SECONDS", 0.3)
    with Store(url) as first, Store(url) as second, first._database.writing():
        with pytest.raises(StoreUnavailable, match="run again later"):
            second.put("f", [ROW])
        assert second.rows("f", "e") == []  # readers do not wait


def _end_connections(postgres) -> None:
    with postgres.connect() as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'armillary'"
        )


def test_a_connection_that_ended_between_transactions_is_made_again(postgres, url):
    with Store(url) as store:
        store.put("f", [ROW])
        _end_connections(postgres)
        store.put("f", [dataclasses.replace(ROW, seed=1)])
        assert [row.seed for row in store.rows("f", "e")] == [0, 1]


def test_a_transaction_whose_connection_is_lost_leaves_nothing(postgres, url):
    class Ending(float):
        """A metric whose reading ends the connection."""

        def __float__(self) -> float:
            _end_connections(postgres)
            return 1.0

    with Store(url) as store:
        store.put("f", [ROW])
        lost = [
            dataclasses.replace(ROW, seed=1),
            dataclasses.replace(ROW, seed=2, metrics={"error": Ending()}),
        ]
        with pytest.raises(StoreLost, match="what is stored is kept") as caught:
            store.put("f", lost)
        assert SECRET not in str(caught.value)
        assert store.rows("f", "e") == [ROW]


# ---- whole runs --------------------------------------------------------------------------------

SLOWLY = """
def slow(work, cell):
    say(cell.seed)
    time.sleep(0.15)
    return ours(work, cell)
EXPERIMENTS = (experiment(
    contenders=(Contender("ours", slow), Contender("peer", peer)), seeds={"quick": 12},
),)
"""


def test_a_run_finds_what_it_finds_with_sqlite(planted, url, measured):
    planted.here()
    expected = measured(planted.run().bundle.rows)
    planted.store = url
    done = planted.bench("--json", "-")
    assert done.returncode == 0, done.stderr
    assert [c["verdict"] for c in json.loads(done.stdout)] == ["holds"]
    assert measured(planted.rows()) == expected
    assert "time: nothing to do" in planted.bench("--dry-run").stdout
    assert SECRET not in done.stdout + done.stderr


def _wait_for_lines(planted, count: int) -> None:
    deadline = time.monotonic() + 60
    while len(planted.logged()) < count:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _start(planted) -> subprocess.Popen:
    return subprocess.Popen(
        planted.command(), env=planted.environment(), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def _count(postgres, url) -> int:
    with postgres.connect(url.rsplit("/", 1)[1]) as connection:
        found = connection.execute("SELECT count(*) FROM cells").fetchone()
    return found[0]


@pytest.mark.slow
def test_a_server_that_stops_mid_run_loses_and_doubles_nothing(planted, postgres, url, measured):
    planted.here(SLOWLY)
    planted.store = url
    process = _start(planted)
    _wait_for_lines(planted, 6)
    postgres.stop()
    try:
        _, said = process.communicate(timeout=60)
    finally:
        postgres.start()
    assert process.returncode == 1
    assert "what is stored is kept, and the same command goes on from there" in said
    assert "Traceback" not in said
    assert SECRET not in said
    kept = _count(postgres, url)
    assert 2 <= kept < 48
    assert planted.bench().returncode == 0
    rows = planted.rows()
    assert len(rows) == 48
    assert _count(postgres, url) == 48
    assert len(planted.logged()) <= 24 + 3  # only what was under way was done again
    planted.store = planted.folder.parent / "whole.sqlite"
    assert measured(rows) == measured(planted.run().bundle.rows)


@pytest.mark.slow
def test_two_runs_and_a_killed_one_share_the_store(planted, postgres, url, measured):
    planted.here(SLOWLY)
    planted.store = url
    killed = _start(planted)
    _wait_for_lines(planted, 3)
    killed.kill()
    killed.communicate(timeout=60)
    both = [_start(planted), _start(planted)]
    for process in both:
        _, said = process.communicate(timeout=60)
        assert process.returncode == 0, said
    assert _count(postgres, url) == 48
    rows = planted.rows()
    planted.store = planted.folder.parent / "whole.sqlite"
    assert measured(rows) == measured(planted.run().bundle.rows)


@pytest.mark.parametrize(
    ("store", "code"),
    [
        ("postgresql://me:word:1@127.0.0.1:1/d", 2),
        ("postgresql+pg8000://me:word:1@h/d", 2),
        ("postgresql://me:word%3A1@h", 2),
    ],
)
def test_a_wrong_store_ends_the_command_before_it_measures(planted, store, code):
    planted.here()
    planted.store = store
    done = planted.bench()
    assert (done.returncode, done.stdout) == (code, "")
    assert len(done.stderr.splitlines()) == 1
    assert "word" not in done.stderr


def test_the_report_reads_it(planted, url, tmp_path):
    planted.here()
    planted.store = url
    planted.bench()
    command = [sys.executable, "-m", "armillary", "report", "--store", url, "-o"]
    done = subprocess.run(
        [*command, str(tmp_path / "site")],
        env=planted.environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    pages = "".join(page.read_text("utf-8") for page in (tmp_path / "site").glob("*.html"))
    assert "The error is at most 0.9 of the peer" in pages
    assert SECRET not in pages
