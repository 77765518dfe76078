"""Runs: every contender does the same work, failures are kept, what is stored is not redone."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from armillary import evidence, places
from armillary.evidence import environment, lock, runner
from armillary.evidence.store import Store

LOGGING = """
def ours(work, cell):
    say(f"ours {cell.case.name} {cell.seed}")
    return {"error": 1.0}
def peer(work, cell):
    say(f"peer {cell.case.name} {cell.seed}")
    return {"error": 2.0}
EXPERIMENTS = (experiment(contenders=(Contender("ours", ours), Contender("peer", peer))),)
"""


def test_rows_are_what_the_contenders_computed(planted):
    planted.here()
    rows = planted.run().bundle.rows
    assert len(rows) == 2 * 3 * 2
    for row in rows:
        n = {"one": 1.0, "two": 2.0}[row.case]
        factor = {"ours": 1.0, "peer": 2.0}[row.contender]
        expected = factor * (1.0 / (2 + row.seed) + 0.1 * n)
        assert row.metrics == {"error": pytest.approx(expected)}
        assert row.status == "ok"


def test_rows_stand_in_the_order_of_cases_seeds_and_contenders(planted):
    planted.here()
    found = [(r.case, r.seed, r.contender) for r in planted.run().bundle.rows]
    assert found == [(c, s, w) for c in ("one", "two") for s in range(3) for w in ("ours", "peer")]


def test_seeds_start_at_the_base(planted):
    planted.here()
    assert {r.seed for r in planted.run(seed_base=40).bundle.rows} == {40, 41, 42}


def test_the_claim_is_judged_from_the_rows(planted):
    planted.here()
    (claim,) = planted.run().claim_records
    assert (claim["method"], claim["claim"], claim["verdict"]) == ("planted", "better", "holds")
    (condition,) = claim["conditions"]
    assert condition["estimate"] == pytest.approx(0.5)
    assert claim["command"] == "armillary bench planted --profile quick"


def test_smoke_gives_no_verdict(planted):
    planted.here()
    (claim,) = planted.run(profile="smoke").claim_records
    assert claim["verdict"] in (None, "none", "")


def test_what_is_stored_is_not_measured_again(planted):
    planted.here(LOGGING)
    first = planted.run()
    assert len(planted.logged()) == 12
    second = planted.run()
    assert len(planted.logged()) == 12
    assert second.bundle.rows == first.bundle.rows


def test_more_seeds_measure_only_the_new_ones(planted):
    planted.here(LOGGING)
    planted.run()
    planted.run(seed_base=1)
    assert len(planted.logged()) == 12 + 4
    assert planted.logged()[12:] == ["ours one 3", "peer one 3", "ours two 3", "peer two 3"]


def test_changed_code_is_measured_anew(planted):
    planted.here(LOGGING)
    planted.run()
    planted.here(LOGGING + "# changed\n")
    planted.run()
    assert len(planted.logged()) == 24


def test_several_workers_find_the_same(planted, measured):
    planted.here()
    alone = planted.run()
    many = planted.run(workers=3, store=planted.folder / "other.sqlite")
    assert measured(many.bundle.rows) == measured(alone.bundle.rows)


def test_the_setup_runs_once_for_all_contenders(planted):
    planted.here(
        """
        def made(cell):
            say("setup")
            return object()
        def who(work, cell):
            say(id(work))
            return {"error": 1.0}
        EXPERIMENTS = (experiment(
            setup=made, contenders=(Contender("ours", who), Contender("peer", who)),
            cases={"quick": (Case("one"),)}, seeds={"quick": 1},
        ),)
        """
    )
    planted.run()
    setup, ours, peer = planted.logged()
    assert (setup, ours) == ("setup", peer)


def test_a_contender_that_raises_is_stored_and_the_others_go_on(planted):
    planted.here(
        """
        def bad(work, cell):
            raise LookupError("nothing in /home/someone/secret, asked http://me:word@host/x")
        EXPERIMENTS = (experiment(contenders=(Contender("ours", ours), Contender("peer", bad))),)
        """
    )
    rows = planted.run().bundle.rows
    assert {r.status for r in rows if r.contender == "ours"} == {"ok"}
    for row in (r for r in rows if r.contender == "peer"):
        assert (row.status, row.kind, row.metrics) == ("failed", "LookupError", {})
        assert "someone" not in row.reason
        assert "word" not in row.reason
        assert row.reason.startswith("nothing in ~/secret, asked http://***@host/x (evidence.py:")


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("return {'error': math.nan}", "nan"),
        ("return {'error': -math.inf}", "inf"),
        ("return {'mistake': 1.0}", "metrics"),
        ("return {'error': 'high'}", "ValueError"),
        ("return None", "TypeError"),
        ("sys.exit(0)", "SystemExit"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("os._exit(0)", "died"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "died"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "died"),
    ],
)
def test_every_way_to_fail_is_a_failure_of_its_kind(planted, body, kind):
    planted.here(
        f"""
        def bad(work, cell):
            {body}
        EXPERIMENTS = (experiment(
            contenders=(Contender("bad", bad), Contender("ours", ours), Contender("peer", peer)),
            seeds={{"quick": 1}},
        ),)
        """
    )
    rows = planted.run().bundle.rows
    assert [(r.contender, r.status, r.kind) for r in rows if r.case == "one"] == [
        ("bad", "failed", kind),
        ("ours", "ok", ""),
        ("peer", "ok", ""),
    ]
    assert all(r.reason for r in rows if r.status == "failed")


@pytest.mark.parametrize(
    ("body", "kind"),
    [("raise ValueError('no')", "setup: ValueError"), ("os._exit(1)", "setup: died")],
)
def test_a_setup_that_fails_fails_every_contender(planted, body, kind):
    planted.here(
        f"""
        def made(cell):
            if cell.seed == 1:
                {body}
        def fine(work, cell):
            return {{"error": 1.0}}
        EXPERIMENTS = (experiment(
            setup=made, contenders=(Contender("ours", fine), Contender("peer", fine)),
        ),)
        """
    )
    for row in planted.run().bundle.rows:
        assert (row.status, row.kind) == (("failed", kind) if row.seed == 1 else ("ok", ""))


def test_a_group_past_its_limit_fails_whoever_was_running(planted):
    planted.here(
        """
        def slow(work, cell):
            time.sleep(60)
        EXPERIMENTS = (experiment(
            contenders=(Contender("ours", ours), Contender("peer", slow), Contender("late", ours)),
            cases={"quick": (Case("one"),)}, seeds={"quick": 1}, max_seconds=1.5,
        ),)
        """
    )
    rows = planted.run().bundle.rows
    assert [(r.contender, r.status, r.kind) for r in rows] == [
        ("ours", "ok", ""),
        ("peer", "failed", "timeout"),
        ("late", "ok", ""),
    ]
    assert "1.5 s" in rows[1].reason


def test_a_process_that_a_contender_started_ends_with_it(planted):
    planted.here(
        """
        import subprocess
        def slow(work, cell):
            child = subprocess.Popen(["sleep", "600"])
            say(child.pid)
            child.wait()
        EXPERIMENTS = (experiment(
            contenders=(Contender("ours", slow), Contender("peer", peer)),
            cases={"quick": (Case("one"),)}, seeds={"quick": 1}, max_seconds=0.7,
        ),)
        """
    )
    planted.run()
    (child,) = planted.logged()
    assert not _running(int(child))


def _running(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_threads_are_set_before_anything_is_imported(planted):
    planted.here(
        """
        THREADS = os.environ.get("OMP_NUM_THREADS"), os.environ.get("MKL_NUM_THREADS")
        def count(work, cell):
            say((cell.threads, *THREADS))
            return {"error": 1.0}
        both = (Contender("ours", count), Contender("peer", count))
        one = dict(contenders=both, cases={"quick": (Case("one"),)}, seeds={"quick": 1})
        EXPERIMENTS = (
            experiment(**one),
            experiment("timed", claims=(), timed=Timing(warmups=0, repeats=1, threads=2), **one),
        )
        """
    )
    planted.run()
    assert planted.logged() == [str((1, "1", "1"))] * 2 + [str((2, "2", "2"))] * 2


def test_global_generators_do_not_carry_over_from_one_contender_to_the_next(planted):
    planted.here(
        """
        import random
        import numpy as np
        def draw(work, cell):
            return {"error": random.random() + np.random.rand() + cell.seed}
        EXPERIMENTS = (experiment(contenders=(Contender("ours", draw), Contender("peer", draw))),)
        """
    )
    rows = planted.run().bundle.rows
    values = [r.metrics["error"] for r in rows]
    assert values[::2] == values[1::2]
    assert values[0] != values[2] - 1


def test_a_script_without_a_main_guard_may_run_evidence(planted):
    """Workers do not import the script that started them."""
    planted.here()
    script = (
        "print('once')\nfrom armillary import evidence\n"
        f"evidence.run('planted', store={str(planted.store)!r}, workers=2)\n"
    )
    done = subprocess.run(
        [sys.executable, "-"], input=script, capture_output=True, text=True,
        env=planted.environment(),
    )  # fmt: skip
    assert done.stdout == "once\n", done.stderr
    assert len(planted.rows()) == 12


def test_contenders_cannot_disturb_the_channel_to_the_runner(planted):
    planted.here(
        """
        def loud(work, cell):
            print("x" * 100_000)
            os.write(1, b"y" * 100_000)
            assert sys.stdin.read() == ""
            return {"error": 1.0}
        EXPERIMENTS = (experiment(contenders=(Contender("ours", loud), Contender("peer", peer))),)
        """
    )
    assert {r.status for r in planted.run().bundle.rows} == {"ok"}


# ---- what is needed ----------------------------------------------------------------------------

NEEDS = """
def uses(work, cell):
    return {"error": float(evidence.data_path("n.txt").read_text())}
def asks(work, cell):
    return {"error": float((evidence.peer_path("lab") / "n.txt").read_text())}
EXPERIMENTS = (experiment(contenders=(
    Contender("ours", ours), Contender("peer", peer),
    Contender("extra", peer, (Need("extra", "no_such.module", "pip install no-such"),)),
    Contender("data", uses, (Need("data", "n.txt", "get n.txt"),)),
    Contender("lab", asks, (Need("path", "lab", "give --peer lab=PATH"),)),
    Contender("url", peer, (Need("endpoint", "PLANTED_URL", "set PLANTED_URL"),)),
    Contender("venv", peer, (Need("venv", "no/such/folder", "scripts/peers/x.sh"),)),
), seeds={"quick": 1}),)
"""


def test_what_is_absent_is_not_run_with_the_hint(planted):
    planted.here(NEEDS)
    found = {r.contender: (r.status, r.kind, r.reason) for r in planted.run().bundle.rows}
    assert found["extra"] == ("not run", "extra", "no_such.module is absent: pip install no-such")
    assert found["data"] == ("not run", "data", "n.txt is absent: get n.txt")
    assert found["lab"][:2] == ("not run", "path")
    assert found["url"][:2] == ("not run", "endpoint")
    assert found["venv"][:2] == ("not run", "venv")
    assert found["ours"][0] == found["peer"][0] == "ok"


def test_what_is_brought_later_is_measured_and_no_path_is_kept(planted, monkeypatch, tmp_path):
    planted.here(NEEDS)
    planted.run()
    data, lab = tmp_path / "my data", tmp_path / "my lab"
    for folder, text in ((data, "7"), (lab, "no number")):
        folder.mkdir()
        (folder / "n.txt").write_text(text)
    monkeypatch.setenv("PLANTED_URL", "http://localhost:1")
    result = planted.run(data=data, peers={"lab": lab})
    found = {r.contender: r for r in result.bundle.rows}
    assert found["data"].metrics == {"error": 7.0}
    assert found["lab"].kind == "ValueError"
    assert found["url"].status == "ok"
    assert found["extra"].status == "not run"
    assert result.bundle.environment["command"].endswith("--data DIR --peer lab=PATH")
    assert str(tmp_path) not in str(result.bundle)


def test_inputs_that_do_not_exist_are_refused(planted, tmp_path):
    planted.here()
    with pytest.raises(NotADirectoryError, match="data="):
        planted.run(data=tmp_path / "none")
    with pytest.raises(FileNotFoundError, match="--peer lab=PATH"):
        planted.run(peers={"lab": tmp_path / "none"})


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"profile": "fast"}, "smoke, quick, full, long"),
        ({"seed_base": -1}, "seed_base=-1"),
        ({"seed_base": 2**63}, "below 2"),
        ({"workers": 0}, "workers=0"),
        ({"claim": "best"}, "planted claims better"),
    ],
)
def test_arguments_out_of_range_are_named(planted, given, match):
    planted.here()
    with pytest.raises(ValueError, match=match):
        planted.run(**given)


def test_a_claim_runs_only_its_own_experiment(planted):
    planted.here(
        """
        import dataclasses
        EXPERIMENTS = (
            experiment(), experiment("second", claims=(dataclasses.replace(BETTER, id="other"),)),
        )
        """
    )
    result = planted.run(claim="other")
    assert [c["claim"] for c in result.claim_records] == ["other"]
    assert {r.experiment for r in result.bundle.rows} == {"second"}


# ---- artefacts ---------------------------------------------------------------------------------

ARTEFACT = """
def build(folder):
    say("built")
    (folder / "n.txt").write_text("3")
    {more}
def uses(work, cell):
    return {{"error": float((evidence.artefact_path("answers") / "n.txt").read_text())}}
EXPERIMENTS = (experiment(
    contenders=(Contender("ours", uses), Contender("peer", uses)),
    prepare=(Artefact("answers", build, "v1", {limit}),),
),)
"""


def test_an_artefact_is_built_once_and_given_to_all(planted):
    planted.here(ARTEFACT.format(more="", limit=30))
    result = planted.run()
    assert {r.metrics["error"] for r in result.bundle.rows} == {3.0}
    planted.here(ARTEFACT.format(more="", limit=30) + "# changed\n")
    planted.run()
    assert planted.logged() == ["built"]


def test_an_artefact_is_not_built_in_a_profile_that_does_not_ask_for_it(planted):
    planted.here(ARTEFACT.format(more="", limit="30, profiles=('long',)"))
    rows = planted.run().bundle.rows
    assert {r.kind for r in rows} == {"KeyError"}  # who needs it all the same is told
    assert planted.logged() == []


@pytest.mark.parametrize(
    ("more", "limit", "match"),
    [
        ("raise OSError('no room')", 30, "OSError: no room"),
        ("time.sleep(60)", 0.5, "longer than its limit of 0.5 s"),
        ("os._exit(9)", 30, "exited with status 9"),
    ],
)
def test_an_artefact_that_cannot_be_built_leaves_cells_not_run(planted, more, limit, match):
    planted.here(ARTEFACT.format(more=more, limit=limit))
    rows = planted.run().bundle.rows
    assert planted.logged() == ["built"]
    assert {(r.status, r.kind) for r in rows} == {("not run", "artefact")}
    assert match in rows[0].reason
    assert list((places.cache_dir() / "artefacts" / "planted").iterdir()) == []
    planted.here(ARTEFACT.format(more="", limit=30))
    assert {r.status for r in planted.run().bundle.rows} == {"ok"}


# ---- timed work --------------------------------------------------------------------------------

TIMED = """
def one(work, cell):
    say(f"a {os.getpid()}")
    if not hasattr(sys, "warm"):
        sys.warm = True
        time.sleep(0.2)
    return {}
def two(work, cell):
    say(f"b {os.getpid()}")
    return {"seconds": 5.0}
EXPERIMENTS = (experiment(
    contenders=(Contender("ours", one), Contender("peer", two)), metrics=(Metric("seconds"),),
    cases={"quick": (Case("one"),)}, seeds={"quick": 2}, claims=(),
    timed=Timing(warmups=1, repeats=3),
),)
"""


def test_timed_contenders_alternate_in_a_fresh_process_a_group(planted):
    planted.here(TIMED)
    planted.run()
    lines = [line.split() for line in planted.logged()]
    assert "".join(who for who, _ in lines) == "abbaabba" * 2
    assert len({process for _, process in lines[:8]}) == 1
    assert len({process for _, process in lines}) == 2


def test_the_first_call_is_kept_apart_from_the_repeats(planted):
    planted.here(TIMED)
    rows = planted.run().bundle.rows
    assert [(r.contender, r.repeat) for r in rows if r.seed == 0] == [
        (who, repeat) for who in ("ours", "peer") for repeat in range(3)
    ]
    ours = [r for r in rows if r.contender == "ours"]
    assert all(r.metrics["first_seconds"] > 0.2 for r in ours if r.repeat == 0)
    assert all("first_seconds" not in r.metrics for r in ours if r.repeat)
    assert all(0 < r.metrics["seconds"] < 0.2 for r in ours)
    assert {r.metrics["seconds"] for r in rows if r.contender == "peer"} == {5.0}


def test_timed_work_comes_after_all_untimed_work(planted):
    planted.here(
        """
        def late(work, cell):
            say("timed")
            return {}
        def early(work, cell):
            say("untimed")
            return {"error": 1.0}
        def both(run):
            return (Contender("ours", run), Contender("peer", run))
        EXPERIMENTS = (
            experiment("t", contenders=both(late), claims=(), timed=Timing(warmups=0, repeats=1)),
            experiment("u", contenders=both(early)),
        )
        """
    )
    planted.run()
    assert planted.logged() == ["untimed"] * 12 + ["timed"] * 12


def test_a_timed_group_is_redone_whole_when_a_part_is_missing(planted):
    """As after an interruption: one contender's rows are there, the other's are not."""
    planted.here(TIMED)
    planted.run()
    calls = len(planted.logged())
    import sqlite3

    connection = sqlite3.connect(planted.store)
    with connection:
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("DELETE FROM cells WHERE contender='ours' AND seed=1 AND repeat=2")
    connection.close()
    rows = planted.run().bundle.rows
    assert len(planted.logged()) == calls + 8
    assert len(rows) == 12
    assert len({(r.seed, r.contender, r.repeat) for r in rows}) == 12


def test_a_timed_contender_that_fails_once_has_no_times(planted):
    planted.here(
        """
        count = 0
        def bad(work, cell):
            global count
            count += 1
            if count == 3:
                raise RuntimeError("third call")
            return {}
        def good(work, cell):
            return {}
        EXPERIMENTS = (experiment(
            contenders=(Contender("ours", good), Contender("peer", bad)),
            cases={"quick": (Case("one"),)}, seeds={"quick": 1}, claims=(),
            timed=Timing(warmups=1, repeats=3),
        ),)
        """
    )
    rows = planted.run().bundle.rows
    assert [(r.contender, r.repeat, r.status) for r in rows] == [
        ("ours", 0, "ok"), ("ours", 1, "ok"), ("ours", 2, "ok"), ("peer", 1, "failed"),
    ]  # fmt: skip


def test_a_timed_contender_that_dies_leaves_the_others_measured(planted):
    planted.here(
        """
        def bad(work, cell):
            os._exit(1)
        def good(work, cell):
            return {}
        EXPERIMENTS = (experiment(
            contenders=(Contender("ours", good), Contender("bad", bad), Contender("peer", good)),
            cases={"quick": (Case("one"),)}, seeds={"quick": 1}, claims=(),
            timed=Timing(warmups=1, repeats=2),
        ),)
        """
    )
    rows = planted.run().bundle.rows
    assert [(r.contender, r.repeat, r.status, r.kind) for r in rows] == [
        ("ours", 0, "ok", ""), ("ours", 1, "ok", ""), ("bad", 0, "failed", "died"),
        ("peer", 0, "ok", ""), ("peer", 1, "ok", ""),
    ]  # fmt: skip


def test_a_busy_machine_is_not_measured_on(planted, monkeypatch):
    planted.here(TIMED)
    monkeypatch.setenv("ARMILLARY_BUSY_SECONDS", "0")
    monkeypatch.setattr(lock, "other_load", lambda seconds: 1.5)
    rows = planted.run().bundle.rows
    assert {(r.status, r.kind) for r in rows} == {("not run", "busy")}
    assert "1.5 cores" in rows[0].reason
    monkeypatch.setattr(lock, "other_load", lambda seconds: 0.1)
    assert {r.status for r in planted.run().bundle.rows} == {"ok"}


def test_smoke_runs_on_a_busy_machine_without_a_wait(planted, monkeypatch):
    planted.here(TIMED.replace('"quick"', '"smoke"'))
    monkeypatch.setattr(lock, "other_load", lambda seconds: pytest.fail("smoke looks at the load"))
    assert {r.status for r in planted.run(profile="smoke").bundle.rows} == {"ok"}


def test_the_machine_is_waited_for_until_it_is_quiet(monkeypatch):
    looks = iter([1.0, 0.5, 0.19, 9.9])
    monkeypatch.setattr(lock, "other_load", lambda seconds: next(looks))
    assert lock.wait_until_quiet(60) is None
    assert next(looks) == 9.9


def test_load_of_others_counts_and_own_load_does_not(monkeypatch):
    ticks = iter([1000, 1000 + 3 * os.sysconf("SC_CLK_TCK")])
    own = iter([10.0, 11.0])
    now = iter([0.0, 2.0])
    monkeypatch.setattr(lock, "_busy_ticks", lambda: next(ticks))
    monkeypatch.setattr(lock, "_own_seconds", lambda: next(own))
    monkeypatch.setattr(lock.time, "monotonic", lambda: next(now))
    monkeypatch.setattr(lock.time, "sleep", lambda seconds: None)
    assert lock.other_load(2.0) == pytest.approx((3.0 - 1.0) / 2.0)


def test_a_second_timed_run_waits_for_the_first(tmp_path, monkeypatch):
    monkeypatch.setattr(lock.tempfile, "gettempdir", lambda: str(tmp_path))
    order, said = [], []

    def second() -> None:
        with lock.alone(said.append):
            order.append("second")

    with lock.alone():
        waiting = threading.Thread(target=second)
        waiting.start()
        while not said:
            time.sleep(0.01)
        order.append("first")
    waiting.join(10)
    assert order == ["first", "second"]
    assert said == ["another timed run holds this machine: waiting for it"]


def test_a_lock_is_not_followed_to_where_a_link_leads(tmp_path, monkeypatch):
    monkeypatch.setattr(lock.tempfile, "gettempdir", lambda: str(tmp_path))
    lock.lock_path().symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError), lock.alone():
        pass
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.skipif(not os.path.exists("/proc/stat"), reason="needs /proc/stat")
def test_a_process_that_computes_is_seen():
    spinner = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        time.sleep(0.2)
        load = lock.other_load(0.5)
    finally:
        spinner.kill()
        spinner.wait()
    assert load is not None
    assert load > lock.QUIET_CORES


@pytest.mark.parametrize("text", ["-1", "soon", "nan", "inf"])
def test_patience_that_is_no_number_is_refused(monkeypatch, text):
    monkeypatch.setenv("ARMILLARY_BUSY_SECONDS", text)
    with pytest.raises(ValueError, match="ARMILLARY_BUSY_SECONDS"):
        lock.patience()


# ---- fingerprints, results ---------------------------------------------------------------------


def _fingerprint(profile: str = "quick") -> str:
    (trial,) = runner.prepare("planted", profile).trials
    return trial.fingerprint


def test_the_fingerprint_covers_code_profile_versions_and_machine(planted, monkeypatch):
    planted.here()
    known = {_fingerprint(), _fingerprint("smoke")}
    assert len(known) == 2
    (planted.folder / "planted_planted" / "parts.py").write_text("X = 1\n")
    known.add(_fingerprint())
    assert len(known) == 3
    with monkeypatch.context() as patch:
        patch.setattr(environment, "_cpu_model", lambda: "another")
        known.add(_fingerprint())
    assert len(known) == 4
    with monkeypatch.context() as patch:
        patch.setattr(environment, "versions", lambda packages: {"numpy": "9"})
        known.add(_fingerprint())
    assert len(known) == 5


def test_card_and_command_do_not_change_the_fingerprint(planted):
    planted.here()
    before = _fingerprint()
    package = planted.folder / "planted_planted"
    (package / "command.py").write_text("X = 1\n")
    (package / "card.py").write_text((package / "card.py").read_text() + "# said better\n")
    assert _fingerprint() == before


def test_shared_modules_that_a_method_imports_are_part_of_its_fingerprint(tmp_path, monkeypatch):
    source = tmp_path / "parts.py"
    package = tmp_path / "armillary"
    for name, text in {
        "__init__.py": "", "corpora/__init__.py": "", "corpora/graphs.py": "",
        "corpora/tables.py": "import armillary.answers", "corpora/data/t.csv": "1,2",
        "answers.py": "", "output/x.py": "", "theory/own/parts.py": "",
    }.items():  # fmt: skip
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    monkeypatch.setattr(environment.armillary, "__file__", str(package / "__init__.py"))
    source.write_text(
        "from armillary.corpora.tables import x\nfrom armillary.output import y\n"
        "from armillary.theory.own.parts import z\n"
    )
    found = environment._imported([source], besides="armillary.theory.own")
    names = {str(file.relative_to(package)) for file in found}
    assert names == {"corpora/__init__.py", "corpora/tables.py", "corpora/data/t.csv", "answers.py"}


def test_a_result_is_records_and_data_frames(planted):
    pandas = pytest.importorskip("pandas")
    planted.here(LOGGING)
    result = planted.run()
    assert isinstance(result.rows, pandas.DataFrame)
    assert result.rows.groupby("contender")["value"].mean().to_dict() == {"ours": 1.0, "peer": 2.0}
    assert result.claims["claim"].tolist() == ["better"]
    assert result.row_records[0]["metric"] == "error"


def test_without_pandas_the_records_remain(planted, monkeypatch):
    planted.here()
    result = planted.run()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        result.claims
    assert len(result.row_records) == 12


def test_the_environment_says_what_the_names_in_the_rows_mean(planted):
    planted.here(TIMED)
    about = planted.run().bundle.environment
    described = about["experiments"]["main"]
    assert described["contenders"] == [
        {"name": "ours", "required": True},
        {"name": "peer", "required": True},
    ]
    assert [m["name"] for m in described["metrics"]] == ["seconds", "first_seconds"]
    assert described["cases"] == [{"name": "one", "x": {}}]
    assert (about["profile"], about["seed_base"], about["seeds"]) == ("quick", 0, {"main": 2})
    assert about["machine"]["cores"] == os.cpu_count()


def test_a_clock_that_steps_back_does_not_hide_the_latest_run(planted, monkeypatch):
    planted.here()
    monkeypatch.setattr(runner, "_now", lambda: "2030-01-01T00:00:00+00:00")
    planted.run()
    monkeypatch.setattr(runner, "_now", lambda: "1970-01-01T00:00:00+00:00")
    planted.run(seed_base=7)
    with Store(planted.store, read_only=True) as store:
        (bundle,) = store.bundles()
    assert bundle.environment["seed_base"] == 7
    assert {r.seed for r in bundle.rows} == {7, 8, 9}
    assert bundle.environment["seconds"] >= 0


def test_the_store_gives_the_bundle_that_the_run_gave(planted):
    planted.here()
    result = planted.run()
    with Store(planted.store, read_only=True) as store:
        (stored,) = store.bundles()
    assert stored.rows == result.bundle.rows
    assert stored.claims == result.bundle.claims
    assert stored.environment == result.bundle.environment


def test_a_later_run_of_one_claim_replaces_that_claim_alone(planted):
    body = """
    import dataclasses
    EXPERIMENTS = (
        experiment(), experiment("second", claims=(dataclasses.replace(BETTER, id="other"),)),
    )
    """
    planted.here(body)
    planted.run()
    planted.run(claim="other", seed_base=50)
    with Store(planted.store, read_only=True) as store:
        (bundle,) = store.bundles()
    assert [c["claim"] for c in bundle.claims] == ["better", "other"]
    assert {(r.experiment, r.seed) for r in bundle.rows} == {
        ("main", 0), ("main", 1), ("main", 2), ("second", 50), ("second", 51), ("second", 52),
    }  # fmt: skip
    assert set(bundle.environment["experiments"]) == {"main", "second"}


def test_two_experiments_of_one_name_are_refused(planted):
    planted.here("EXPERIMENTS = (experiment(claims=()), experiment())")
    with pytest.raises(ValueError, match="two experiments are named 'main'"):
        planted.run()


def test_public_names_are_offered():
    assert evidence.run is runner.run
    assert evidence.consume(b"") == evidence.consume()


def test_a_gpu_is_asked_of_the_drivers_tool_first(monkeypatch):
    from armillary.evidence import inputs
    from armillary.evidence.shapes import Need

    need = Need("gpu", "cuda", "use a machine with a GPU")
    monkeypatch.setattr(inputs.shutil, "which", lambda name: None)
    inputs._gpu.cache_clear()
    assert not inputs.Inputs().has(need)
    monkeypatch.setattr(inputs.shutil, "which", lambda name: "/usr/bin/nvidia-smi")
    answers = {"nvidia-smi": True, sys.executable: False}
    monkeypatch.setattr(inputs, "_says", lambda *command, expect: answers[command[0]])
    monkeypatch.setattr(inputs, "_importable", lambda module: True)
    inputs._gpu.cache_clear()
    assert not inputs.Inputs().has(need)
    answers[sys.executable] = True
    inputs._gpu.cache_clear()
    assert inputs.Inputs().has(need)
    inputs._gpu.cache_clear()


def test_peers_of_the_environment_that_are_no_json_are_explained(planted, monkeypatch):
    planted.here()
    monkeypatch.setenv("ARMILLARY_PEERS", "lab=/x")
    with pytest.raises(ValueError, match=r"ARMILLARY_PEERS.*--peer"):
        planted.run()
