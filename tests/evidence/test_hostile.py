"""Runs in a hostile world: killed, interrupted, without room, without a home, with odd names."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import resource
import signal
import sqlite3
import subprocess
import time

import pytest

from armillary.evidence import lock
from armillary.evidence.store import Store

#: Some seconds of work in small pieces: untimed cells, then timed groups whose times are given.
SLOW = """
def work_of(factor):
    def run(work, cell):
        say(os.getpid())
        time.sleep(0.02)
        return {"error": factor / (2 + cell.seed)}
    return run
def time_of(factor):
    def run(work, cell):
        say(os.getpid())
        time.sleep(0.005)
        return {"seconds": factor * (1 + cell.seed)}
    return run
CASES = {"quick": (Case("one", {"n": 1.0}), Case("two", {"n": 2.0}))}
EXPERIMENTS = (
    experiment(
        cases=CASES, seeds={"quick": 8},
        contenders=(Contender("ours", work_of(1.0)), Contender("peer", work_of(2.0))),
    ),
    experiment(
        "timed", cases=CASES, seeds={"quick": 3}, metrics=(Metric("seconds", "s"),),
        contenders=(Contender("ours", time_of(1.0)), Contender("peer", time_of(3.0))),
        timed=Timing(warmups=1, repeats=3),
        claims=(Claim(
            "faster", "At most half the time.", "nothing",
            (Condition(Stat("seconds", over=("peer",), form="ratio", pool="geomean"),
                       at_most=0.5),),
        ),),
    ),
)
"""
#: Measurements that a whole run of SLOW leaves: 2 cases x 8 seeds x 2, and 2 x 3 x 2 x 3 repeats.
WHOLE = 32 + 36


def stored(path) -> list[tuple]:
    """The keys in a store, which must be in order whatever has happened to its writer."""
    if not path.exists():
        return []
    with contextlib.closing(sqlite3.connect(path, timeout=60)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name='cells'").fetchone():
            return []
        keys = connection.execute(
            "SELECT experiment, case_name, seed, contender, repeat, status FROM cells"
        ).fetchall()
        orphans = "SELECT count(*) FROM metrics WHERE cell NOT IN (SELECT id FROM cells)"
        assert connection.execute(orphans).fetchone() == (0,)
        lonely = (
            "SELECT count(*) FROM cells WHERE status='ok' AND id NOT IN (SELECT cell FROM metrics)"
        )
        assert connection.execute(lonely).fetchone() == (0,)
    assert len({key[:5] for key in keys}) == len(keys)
    timed = [key for key in keys if key[0] == "timed"]
    groups = {key[1:3] for key in timed}
    assert len(timed) == 6 * len(groups), "a timed group is stored whole or not at all"
    return keys


def without_seconds(value):
    """Claims without what a clock has said."""
    if isinstance(value, dict):
        dropped = ("first_seconds", "artefact_seconds", "seconds")
        return {
            k: without_seconds(v)
            for k, v in value.items()
            if k not in dropped or (k == "seconds" and isinstance(v, dict))
        }
    if isinstance(value, list):
        return [without_seconds(item) for item in value]
    return value


def figures(rows):
    """Rows without what a clock has said."""
    return [
        (r.experiment, r.case, r.seed, r.contender, r.repeat, r.status,
         {k: v for k, v in r.metrics.items() if k != "first_seconds"})
        for r in rows
    ]  # fmt: skip


def running(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def start(planted, *arguments: str, **more: str) -> subprocess.Popen:
    return subprocess.Popen(
        planted.command(*arguments), env=planted.environment(**more), start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def until(condition, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("kills", "workers"), [(5, 1), pytest.param(50, 2, marks=pytest.mark.slow)]
)
def test_killed_at_random_moments_nothing_is_lost_or_doubled(planted, kills, workers):
    planted.here(SLOW)
    reference = planted.run(store=planted.folder / "reference.sqlite").bundle
    chance = random.Random(kills)
    before: set[tuple] = set()
    for kill in range(kills):
        calls = len(planted.logged())
        process = start(planted, "--workers", str(workers))
        if kill % 3:  # at work; else perhaps while the store is opened
            until(lambda: len(planted.logged()) > calls or process.poll() is not None)  # noqa: B023
        time.sleep(chance.uniform(0.0, 1.0))
        process.kill()
        process.communicate()
        keys = set(stored(planted.store))
        assert before <= keys
        before = keys
        if len(keys) == WHOLE:  # begin again, so that every kill meets a run at work
            planted.store.unlink()
            for beside in planted.store.parent.glob("evidence.sqlite-*"):
                beside.unlink()
            before = set()
    until(lambda: not any(running(int(p)) for p in set(planted.logged())), 20)
    resumed = planted.run().bundle
    assert len(stored(planted.store)) == WHOLE
    assert figures(resumed.rows) == figures(reference.rows)
    assert without_seconds(resumed.claims) == without_seconds(reference.claims)
    assert {c["verdict"] for c in resumed.claims} == {"holds"}


def test_ctrl_c_stops_at_once_and_the_same_command_goes_on(planted):
    planted.here(SLOW)
    process = start(planted)
    until(lambda: len(stored(planted.store)) >= 6)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "goes on from here" in said
    assert "Traceback" not in said
    kept = stored(planted.store)
    assert 6 <= len(kept) < WHOLE
    until(lambda: not any(running(int(p)) for p in set(planted.logged())), 20)
    calls = len(planted.logged())
    assert planted.bench().returncode == 0
    assert len(stored(planted.store)) == WHOLE
    untimed = sum(key[0] == "main" for key in kept)
    timed = sum(key[0] == "timed" for key in kept) // 3
    assert len(planted.logged()) - calls == (32 - untimed) + (12 - timed) * 4


def test_two_runs_at_once_share_the_store(planted):
    planted.here(SLOW)
    first, second = start(planted), start(planted, "--workers", "2")
    for process in (first, second):
        _, said = process.communicate(timeout=110)
        assert process.returncode == 0, said
    assert len(stored(planted.store)) == WHOLE


def test_a_disk_that_fills_up_ends_the_run_and_keeps_what_is_stored(planted):
    planted.here(SLOW)

    def small_files() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, resource.RLIM_INFINITY))

    full = subprocess.run(
        planted.command(), env=planted.environment(), capture_output=True, text=True,
        preexec_fn=small_files, timeout=100,
    )  # fmt: skip
    assert full.returncode == 1
    assert "make room" in full.stderr
    assert "Traceback" not in full.stderr
    kept = stored(planted.store)
    assert len(kept) < WHOLE
    assert planted.bench().returncode == 0
    assert len(stored(planted.store)) == WHOLE


def test_the_timing_lock_outlives_a_killed_run_until_its_process_is_gone(planted, tmp_path):
    planted.here(
        """
        def slow(work, cell):
            say(os.getpid())
            time.sleep(1)
            return {}
        EXPERIMENTS = (experiment(
            contenders=(Contender("ours", slow), Contender("peer", slow)), claims=(),
            cases={"quick": (Case("one"),)}, seeds={"quick": 1}, timed=Timing(repeats=9),
        ),)
        """
    )
    process = start(planted, TMPDIR=str(tmp_path))
    until(lambda: bool(planted.logged()))
    with open(tmp_path / lock.lock_path().name) as file:
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        process.kill()
        process.communicate()
        until(lambda: not running(int(planted.logged()[0])), 10)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


LONG = "n" * 300
QUOTES = "'; DROP TABLE cells; --"
NAMES = ["with space", "a/b/../c", "tab\tand\nnewline", "emoji 🪐 ñ", QUOTES, LONG]


def test_odd_names_are_kept_as_they_are(planted):
    planted.here(
        f"""
        NAMES = {NAMES!r}
        def run(work, cell):
            return {{name: float(i) for i, name in enumerate(NAMES)}}
        EXPERIMENTS = tuple(
            experiment(
                name, cases={{"quick": [Case(n) for n in NAMES]}}, seeds={{"quick": 1}}, claims=(),
                contenders=tuple(Contender(n, run) for n in ("ours", *NAMES)),
                metrics=tuple(Metric(n) for n in NAMES),
            )
            for name in NAMES
        )
        """
    )
    done = planted.bench()
    assert done.returncode == 0, done.stderr
    rows = planted.rows()
    assert [(r.experiment, r.case, r.contender) for r in rows] == [
        (e, c, w) for e in NAMES for c in NAMES for w in ["ours", *NAMES]
    ]
    assert all(r.metrics == {n: float(i) for i, n in enumerate(NAMES)} for r in rows)


def test_odd_errors_are_stored_all_the_same(planted):
    planted.here(
        """
        class Mute(Exception):
            def __str__(self):
                raise ValueError("no words")
        ERRORS = {
            "half": OSError("no file \\udcff.txt"), "long": ValueError("x" * 10**7),
            "zero": ValueError("a\\x00b"), "mute": Mute(), "empty": RuntimeError(),
            "lines": ValueError("one\\ntwo"),
        }
        def raising(error):
            def run(work, cell):
                raise error
            return run
        EXPERIMENTS = (experiment(
            contenders=(Contender("ours", ours), Contender("peer", peer),
                        *(Contender(n, raising(e)) for n, e in ERRORS.items())),
            seeds={"quick": 1},
        ),)
        """
    )
    found = {r.contender: (r.kind, r.reason) for r in planted.run().bundle.rows}
    assert found["half"][1].startswith("no file ?.txt")
    assert len(found["long"][1]) == 400
    assert found["zero"][1].startswith("a b (evidence.py")
    assert found["mute"][0] == "Mute"
    assert "its message raised ValueError" in found["mute"][1]
    assert found["empty"][1].startswith("no message")
    assert found["lines"][1].startswith("one two")


def test_odd_artefact_names_have_folders_of_their_own(planted):
    planted.here(
        f"""
        NAMES = {NAMES!r}
        def build(folder):
            (folder / "n.txt").write_text(str(len(list(folder.parent.glob("[!.]*")))))
        def run(work, cell):
            folders = [evidence.artefact_path(name) for name in NAMES]
            return {{"error": float(len(set(folders)))}}
        EXPERIMENTS = (experiment(
            contenders=(Contender("ours", run), Contender("peer", run)),
            prepare=tuple(Artefact(name, build, "../" + name, 30) for name in NAMES),
        ),)
        """
    )
    rows = planted.run().bundle.rows
    assert {r.metrics.get("error") for r in rows} == {float(len(NAMES))}, rows[0].reason


def test_nothing_able_to_run_exits_3_with_the_hint(planted):
    planted.here(
        """
        gone = (Need("data", "graph.npz", "get graph.npz from its publisher"),)
        EXPERIMENTS = (experiment(
            cases={"quick": (Case("one", needs=gone), Case("two", needs=gone))},
        ),)
        """
    )
    done = planted.bench("--json", "-")
    assert done.returncode == 3
    assert "get graph.npz from its publisher" in done.stderr
    (claim,) = json.loads(done.stdout)
    assert claim["verdict"] == "not run"


@pytest.mark.parametrize("home", ["/proc/self/nowhere", "file"])
def test_a_home_that_cannot_be_written_is_explained(planted, tmp_path, home):
    planted.here()
    (tmp_path / "file").write_text("")
    done = subprocess.run(
        [word for word in planted.command() if word not in ("--store", str(planted.store))],
        env=planted.environment(ARMILLARY_HOME=str(tmp_path / home)),
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2
    assert "--store" in done.stderr
    assert "ARMILLARY_HOME" in done.stderr
    assert "Traceback" not in done.stderr


def test_first_runs_of_several_processes_make_one_store(planted):
    planted.here()
    processes = [start(planted) for _ in range(4)]
    for process in processes:
        _, said = process.communicate(timeout=100)
        assert process.returncode == 0, said
    with Store(planted.store) as store:
        (bundle,) = store.bundles()
    assert len(bundle.rows) == 12
    with contextlib.closing(sqlite3.connect(planted.store)) as connection:
        assert connection.execute("SELECT count(*) FROM cells").fetchone() == (12,)
        assert connection.execute("SELECT count(*) FROM runs WHERE finished").fetchone() == (4,)


def test_a_worker_that_is_killed_from_outside_does_not_end_the_run(planted):
    planted.here(SLOW)
    process = start(planted)
    until(lambda: len(planted.logged()) >= 3)
    os.kill(int(planted.logged()[-1]), signal.SIGKILL)
    _, said = process.communicate(timeout=100)
    assert process.returncode == 1  # a contender's death is a failure, and is said
    assert "killed by SIGKILL" in said
    keys = stored(planted.store)
    assert len(keys) == WHOLE
    assert sum(key[5] == "failed" for key in keys) == 1
