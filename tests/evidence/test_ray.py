"""Untimed work on Ray: the same rows as without it, once each, whatever becomes of its workers."""

from __future__ import annotations

import sys

import pytest

from armillary.errors import MissingExtra
from armillary.evidence import cluster
from armillary.evidence.inputs import Inputs
from armillary.evidence.schedule import Group, Trial
from armillary.evidence.shapes import Row
from armillary.evidence.store import Store

pytest.importorskip("ray", reason="needs the extra 'ray'")

#: A timed and an untimed experiment, and every way to fail.
BODY = """
def raising(work, cell):
    raise RuntimeError("no")

def dying(work, cell):
    os.kill(os.getpid(), signal.SIGKILL)

def endless(work, cell):
    time.sleep(60)

EXPERIMENTS = (
    experiment(contenders=(
        Contender("ours", ours), Contender("peer", peer), Contender("raising", raising),
        Contender("dying", dying), Contender("lab", peer, (Need("extra", "no_such", "pip x"),)),
    )),
    experiment("late", contenders=(Contender("ours", ours), Contender("endless", endless)),
               claims=(), seeds={"quick": 1}, max_seconds=2.0),
    experiment("clock", claims=(), seeds={"quick": 1}, timed=Timing(repeats=2)),
)
"""


def without_seconds(rows):
    return [
        (r.experiment, r.case, r.seed, r.contender, r.repeat, r.status, r.kind,
         {k: v for k, v in r.metrics.items() if "seconds" not in k})
        for r in rows
    ]  # fmt: skip


def cells(store_path) -> list[tuple]:
    with Store(store_path, read_only=True) as store, store._database.reading() as connection:
        return [tuple(row) for row in connection.exec_driver_sql("SELECT * FROM cells")]


# ---- the task, without a cluster ---------------------------------------------------------------


@pytest.fixture
def job(planted):
    """A group of the planted method as a task gets it."""
    planted.here(BODY)
    import planted_planted.evidence as module  # pyright: ignore[reportMissingImports]

    trial = Trial("planted", module.EXPERIMENTS[0], "quick", "f", (1,))
    group = Group(trial, "two", 1, ("ours", "raising", "dying", "lab"))
    name = "planted_planted.evidence"
    code = cluster.code_of(name, "main", Inputs())
    return cluster._job(group, name, Inputs(), code)


def test_a_task_gives_the_rows_of_its_group_and_of_no_other(job):
    found = cluster.measure_group(job)
    told = {row.contender: (row.case, row.seed, row.status, row.kind) for row in found.rows}
    assert told == {
        "ours": ("two", 1, "ok", ""),
        "raising": ("two", 1, "failed", "RuntimeError"),
        "dying": ("two", 1, "failed", "died"),
        "lab": ("two", 1, "not run", "extra"),
    }
    (ours,) = (row for row in found.rows if row.contender == "ours")
    assert ours.metrics == {"error": pytest.approx(1 / 3 + 0.2)}
    assert found.seconds is not None


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"code": "other"}, "other code of this method"),
        ({"versions": {"numpy": "0.1"}}, "other versions of numpy"),
    ],
)
def test_a_node_with_other_code_or_versions_measures_nothing(job, change, told):
    found = cluster.measure_group(job | change)
    assert {(row.status, row.kind) for row in found.rows} == {("not run", "ray")}
    assert {row.contender for row in found.rows} == set(job["contenders"])
    assert all(told in row.reason for row in found.rows)


def test_rows_that_come_twice_are_stored_once(job, tmp_path):
    first, again = (cluster.measure_group(job).rows for _ in range(2))
    with Store(tmp_path / "s.sqlite") as store:
        store.put("f", first)
        store.put("f", again)
        assert len(store.rows("f", "main")) == len(first) == 4


@pytest.mark.parametrize(
    "address", ["", "somewhere", "host:", "host:99999", "http://h:1", "127.0.0.1:1", "a b:1"]
)
def test_addresses_that_lead_nowhere_are_refused_in_one_line(planted, address):
    planted.here()
    done = planted.bench("--ray", address)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("armillary: --ray")
    assert len(done.stderr.splitlines()) == 1
    assert not planted.store.exists()


def test_workers_and_a_cluster_exclude_each_other(planted):
    planted.here()
    done = planted.bench("--ray", "local", "--workers", "2")
    assert done.returncode == 2
    assert "not both" in done.stderr
    with pytest.raises(ValueError, match="not both"):
        planted.run(ray="local")


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"pip install 'armillary\[ray\]'"):
        cluster.Cluster("local", 1)


# ---- a real cluster ----------------------------------------------------------------------------


@pytest.mark.slow
def test_a_cluster_of_two_workers_gives_the_rows_of_a_serial_run(planted):
    planted.here(BODY)
    serial = planted.bench("--workers", "1")
    expected = planted.rows()
    planted.store = planted.folder.parent / "ray.sqlite"
    done = planted.bench("--ray", "local")
    assert (done.returncode, done.stdout) == (serial.returncode, serial.stdout)
    rows = planted.rows()
    assert without_seconds(rows) == without_seconds(expected)
    assert {r.kind for r in rows} >= {"RuntimeError", "died", "timeout", "extra"}
    assert "nothing to do" in planted.bench("--ray", "local", "--dry-run").stdout


#: A contender that ends the Ray worker above its own process, once or always.
LOST = """
def lost(work, cell):
    say(f"{cell.case.name} {cell.seed}")
    flag = pathlib.Path(os.environ["PLANTED_LOG"] + f".{cell.case.name}.{cell.seed}")
    if ALWAYS or not flag.exists():
        flag.touch()
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
    return ours(work, cell)
EXPERIMENTS = (experiment(contenders=(Contender("ours", lost), Contender("peer", peer)),),)
"""


@pytest.mark.slow
def test_a_task_that_ray_tries_again_leaves_one_row_a_key(planted):
    planted.here("ALWAYS = False\n" + LOST)
    done = planted.bench("--ray", "local")
    assert done.returncode == 0, done.stderr
    assert len(planted.logged()) == 12, "each of six groups was begun twice"
    rows: list[Row] = planted.rows()
    assert [row.status for row in rows] == ["ok"] * 12
    assert len(cells(planted.store)) == 12


@pytest.mark.slow
def test_a_task_that_is_lost_each_time_is_not_run_and_can_be_measured_later(planted):
    planted.here("ALWAYS = os.environ.get('GENTLE') is None\n" + LOST)
    done = planted.bench("--ray", "local", "--profile", "smoke")
    assert done.returncode == 3, done.stderr
    rows = planted.rows("smoke")
    assert {(row.status, row.kind) for row in rows} == {("not run", "ray")}
    assert all("its Ray task was lost" in row.reason for row in rows)
    assert len(planted.logged()) == 2 * (1 + cluster.RETRIES)
    assert planted.bench("--profile", "smoke", GENTLE="1").returncode == 0
    assert {row.status for row in planted.rows("smoke")} == {"ok"}
    assert len(cells(planted.store)) == 4
