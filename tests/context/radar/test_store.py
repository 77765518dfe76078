"""One row a question, bound to its judge, whole under two writers."""

from __future__ import annotations

import datetime as dt
import sqlite3
import threading

import pytest

from armillary.context.radar.memory import CampaignState, PaperState
from armillary.context.radar.store import (
    BeliefStore,
    Remembered,
    StaleObservationError,
    as_number,
    rebind,
)

STATE = CampaignState(("a", "b"), (0.75, 0.25), 6.5, 3)


def known(time=None, state=STATE, answer="a", event="e" * 64):
    return Remembered(state, answer, 1.25, time, event)


@pytest.mark.parametrize("state", [STATE, PaperState("a", 0.5, 0.25)])
def test_what_is_put_is_got(tmp_path, state):
    path = tmp_path / "beliefs.db"
    BeliefStore(path).put("q", known(2.0, state))
    assert BeliefStore(path).get("q") == known(2.0, state)
    assert BeliefStore(path).get("other") is None


def test_one_row_a_question(tmp_path):
    store = BeliefStore(tmp_path / "beliefs.db")
    for time in range(5):
        assert store.put(
            "q", known(float(time), event=str(time)), after=str(time - 1) if time else None
        )
    store.put("r", known())
    assert len(store) == 2
    with sqlite3.connect(tmp_path / "beliefs.db") as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_bytes_of_a_row():
    store = BeliefStore()
    store.put("key", known(1.0))
    state = '{"kind": "campaign", "answers": ["a", "b"], "belief": [0.75, 0.25], '
    state += '"expected": 6.5, "step": 3}'
    # key, state, answer and event as text, margin and time as numbers.
    assert store.bytes_of("key") == 3 + len(state) + 1 + 64 + 16


def test_stale_is_refused_at_the_row_too():
    store = BeliefStore()
    store.put("q", known(5.0))
    with pytest.raises(StaleObservationError, match="time 4 came after one of time 5"):
        store.put("q", known(4.0, answer="late", event="f"), after="e" * 64)
    assert store.put("q", known(5.0, answer="same time", event="f"), after="e" * 64)
    assert store.get("q") == known(5.0, answer="same time", event="f")


def test_years_and_unix_times_do_not_mix():
    store = BeliefStore()
    store.put("q", known(2023.5))
    with pytest.raises(StaleObservationError, match="mixes years or dates with Unix times"):
        store.put("q", known(1.7e9, event="f"), after="e" * 64)


def test_one_observation_is_written_once():
    store = BeliefStore()
    assert store.put("q", known(1.0))
    assert not store.put("q", known(1.0, answer="b"), after="e" * 64)
    assert store.get("q") == known(1.0)


def test_two_writers_lose_nothing(tmp_path):
    path = tmp_path / "beliefs.db"
    stores = [BeliefStore(path), BeliefStore(path)]

    def write(store, name):
        for i in range(25):
            assert store.put(f"{name}{i}", known(float(i)))
            while True:  # count in the shared row, as a writer that thinks again
                row = store.get("shared")
                step = row.state.step + 1 if row else 1
                state = CampaignState(("a",), (1.0,), 1.0, step)
                new = Remembered(state, "a", 0.0, None, f"{name}{i}".ljust(64, "."))
                if store.put("shared", new, after=row.event if row else None):
                    break

    threads = [
        threading.Thread(target=write, args=(store, name))
        for store, name in zip(stores, "xy", strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(stores[0]) == 51
    shared = stores[0].get("shared")
    assert shared is not None
    assert shared.state.step == 50  # pyright: ignore[reportAttributeAccessIssue]


def test_many_may_open_a_new_store_at_once(tmp_path):
    path, opened, errors = tmp_path / "new.db", [], []

    def open_one():
        try:
            opened.append(BeliefStore(path))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=open_one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(opened) == 8
    opened[0].put("q", known())
    assert len(opened[7]) == 1


def test_a_row_that_another_writer_changed_is_not_overwritten():
    store = BeliefStore()
    store.put("q", known(1.0))
    assert not store.put("q", known(2.0, answer="b", event="g"), after=None)
    assert not store.put("q", known(2.0, answer="b", event="g"), after="f" * 64)
    assert store.get("q") == known(1.0)


def test_a_store_of_another_judge_is_refused_and_can_be_migrated(tmp_path):
    path = tmp_path / "beliefs.db"
    BeliefStore(path, scorer="values").put("q", known())
    with pytest.raises(ValueError, match=r"migrate STORE --scorer nli:x"):
        BeliefStore(path, scorer="nli:x")
    assert rebind(path, scorer="nli:x") == 1
    assert BeliefStore(path, scorer="nli:x").get("q") == known()


def test_a_store_of_the_other_memory_or_schema_is_refused(tmp_path):
    path = tmp_path / "beliefs.db"
    BeliefStore(path, memory="campaign").close()
    with pytest.raises(ValueError, match="has memory 'campaign', this run has 'paper'"):
        BeliefStore(path, memory="paper")
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE radar_about SET value = '99' WHERE name = 'schema'")
    with pytest.raises(ValueError, match="has schema '99', this run has '1'"):
        BeliefStore(path)
    with pytest.raises(ValueError, match="schema is '99'"):
        rebind(path, scorer="x")


def test_migrating_what_is_no_store(tmp_path):
    with pytest.raises(FileNotFoundError, match="no belief store"):
        rebind(tmp_path / "absent.db", scorer="x")
    (tmp_path / "text.db").write_text(
        "not a database at all, but long enough to be read as one" * 9
    )
    with pytest.raises(ValueError, match="is no belief store"):
        rebind(tmp_path / "text.db", scorer="x")
    with pytest.raises(FileNotFoundError, match="no folder"):
        BeliefStore(tmp_path / "absent" / "beliefs.db")


@pytest.mark.parametrize(
    ("time", "number"),
    [
        (None, None),
        (2023, 2023.0),
        ("2023", 2023.0),
        ("2023-01-01", 2023.0),
        ("2023-07-02T12:00:00", 2023.5),
        ("2023-07-02T14:00:00+02:00", 2023.5),
        (dt.date(2024, 1, 1), 2024.0),
        (1.7e9, 1.7e9),
        ("20230101", 2023.0),
        ("9999-12-31", 9999 + 364 / 365),
        ("9999-12-31T23:00:00-05:00", 9999 + (364 + 23 / 24) / 365),
    ],
)
def test_times_are_comparable(time, number):
    assert as_number(time) == (None if number is None else pytest.approx(number, rel=1e-12))


@pytest.mark.parametrize("time", [True, [2023], {"year": 2023}])
def test_times_of_another_type_are_refused(time):
    with pytest.raises(TypeError, match="time: got a"):
        as_number(time)


def test_another_program_s_file_is_left_as_it_is(tmp_path):
    path = tmp_path / "theirs.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE notes (text TEXT)")
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"SQLite file of something else \(tables notes\)"):
        BeliefStore(path)
    assert path.read_bytes() == before
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE radar_about (other TEXT)")
        connection.execute("CREATE TABLE radar_beliefs (other TEXT)")
    with pytest.raises(ValueError, match="is no belief store: no such column") as told:
        BeliefStore(path)
    assert "\n" not in str(told.value)


def test_what_is_no_database_is_told_in_one_line(tmp_path):
    path = tmp_path / "text.db"
    path.write_text("not a database at all, but long enough to be read as one" * 9)
    with pytest.raises(ValueError, match="is no belief store: file is not a database") as told:
        BeliefStore(path)
    assert "\n" not in str(told.value)
    with pytest.raises(ValueError, match="no database of the kind 'nosuch'"):
        BeliefStore("nosuch://host/name")


def test_a_database_that_does_not_answer_shows_no_password():
    pytest.importorskip("psycopg")
    with pytest.raises(ConnectionError, match="refused") as told:
        BeliefStore("postgresql+psycopg://me:secret@127.0.0.1:9/none")
    assert "secret" not in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("time", [float("nan"), "inf", "soon", "2023-13-01", 10**400])
def test_times_that_do_not_compare_are_refused(time):
    with pytest.raises(ValueError, match="time="):
        as_number(time)
