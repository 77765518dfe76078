"""`--case` and `--contender`: what a user brings is shown beside the claims and changes none."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys

import pytest

from armillary.evidence.store import Store

METHOD = """
def setup(cell):
    if cell.case.name.startswith("mine"):
        numbers = [float(line) for line in evidence.case_path().read_text().split()]
        return {"seed": cell.seed, "n": sum(numbers)}
    return {"seed": cell.seed, "n": cell.case.x["n"]}

def case_from_file(path):
    lines = path.read_text().split()
    if not lines:
        raise ValueError("the file is empty: give one number a line")
    return "main", Case(path.name, {"n": float(len(lines))})

EXPERIMENTS = (experiment(setup=setup, title="Errors"),)
"""

#: Half of ours error, and a trace of which work it saw.
HERS = """
import os

def half(work, cell):
    return {"error": (1.0 / (2 + work["seed"]) + 0.1 * work["n"]) / 2}

def raising(work, cell):
    raise RuntimeError("no")

def silent(work, cell):
    return {}

number = 3
"""


@pytest.fixture
def bench(planted, tmp_path):
    """`armillary bench planted` from a folder with her method and her data in it."""
    folder = tmp_path / "her folder"
    folder.mkdir()
    (folder / "hers.py").write_text(HERS, "utf-8")
    (folder / "mine.txt").write_text("1\n2\n3.5\n", "utf-8")

    def go(*arguments):
        # The console script, unlike ``python -m``, has no current folder on the path.
        code = "from armillary.cli import main; main()"
        return subprocess.run(
            [sys.executable, "-P", "-c", code, *planted.command()[3:], *arguments],
            cwd=folder, env=planted.environment(), capture_output=True, text=True, timeout=120,
        )  # fmt: skip

    go.folder = folder
    return go


def _records(done) -> dict[str, dict]:
    assert done.returncode == 0, done.stderr
    return {record["claim"]: record for record in json.loads(done.stdout)}


def _store_rows(planted) -> list[tuple]:
    with Store(planted.store, read_only=True) as store, store._database.reading() as connection:
        question = "SELECT fingerprint, experiment, case_name, contender FROM cells"
        return [tuple(row) for row in connection.exec_driver_sql(question)]


def test_her_method_is_shown_with_its_ratio_to_ours(planted, bench):
    planted.here(METHOD)
    records = _records(bench("--contender", "hers:half", "--json", "-"))
    assert list(records) == ["better", "own:main"]
    own = records["own:main"]
    assert (own["own"], own["verdict"]) == (True, "none")
    (ratio,) = own["conditions"]
    assert (ratio["of"], ratio["over"], ratio["form"]) == ("hers:half", "ours", "ratio")
    assert ratio["estimate"] == pytest.approx(0.5)  # her error is half of ours in every cell
    assert ratio["low"] == pytest.approx(0.5)
    assert (ratio["at_most"], ratio["at_least"], ratio["status"]) == (None, None, "none")
    assert set(own["contenders"]) == {"ours", "hers:half"}
    assert own["command"].endswith("--contender hers:half")


def test_her_case_is_done_by_every_contender(planted, bench):
    planted.here(METHOD)
    records = _records(bench("--case", "mine.txt", "--json", "-"))
    own = records["own:main"]
    # 6.5 in all: ours has 1 / (2 + seed) + 0.65 over the seeds 0, 1 and 2, the peer twice that.
    expected = (1 / 2 + 1 / 3 + 1 / 4) / 3 + 0.65
    assert own["contenders"]["ours"]["error"]["estimate"] == pytest.approx(expected)
    assert own["contenders"]["peer"]["error"]["estimate"] == pytest.approx(2 * expected)
    assert own["conditions"][0]["estimate"] == pytest.approx(0.5)
    assert "mine.txt" in own["statement"]
    assert own["command"].endswith("--case FILE")
    assert own["seeds"] == [0, 1, 2]


def test_case_and_method_together_are_one_comparison(planted, bench):
    planted.here(METHOD)
    records = _records(bench("--case", "mine.txt", "--contender", "hers:half", "--json", "-"))
    assert records["own:main"]["conditions"][0]["estimate"] == pytest.approx(0.5)
    mine = {(c, who) for _, e, c, who in _store_rows(planted) if e == "own:main"}
    assert mine == {("mine.txt", "ours"), ("mine.txt", "peer"), ("mine.txt", "hers:half")}


def test_no_claim_and_no_row_of_the_method_changes(planted, bench):
    planted.here(METHOD)
    plain = _records(bench("--json", "-"))
    before = sorted(_store_rows(planted))
    given = ("--case", "mine.txt", "--contender", "hers:half")
    brought = _records(bench(*given, "--json", "-"))
    assert brought.pop("own:main")["own"] is True
    assert brought == plain
    after = [row for row in sorted(_store_rows(planted)) if not row[1].startswith("own:")]
    assert after == before
    assert _records(bench("--json", "-")) == plain


@pytest.mark.slow
def test_a_changed_file_or_method_is_measured_anew_and_an_unchanged_one_is_not(planted, bench):
    planted.here(METHOD)
    given = ("--case", "mine.txt", "--contender", "hers:half")

    def to_measure() -> int:
        text = bench(*given, "--dry-run").stdout
        return int(text.split("to measure: ")[1].split()[0])

    assert to_measure() == 12 + 9
    bench(*given)
    assert to_measure() == 0
    (bench.folder / "mine.txt").write_text("4\n")
    assert to_measure() == 9
    bench(*given)
    (bench.folder / "hers.py").write_text(HERS + "# changed\n")
    assert to_measure() == 9


def test_a_raising_method_of_hers_fails_alone(planted, bench):
    planted.here(METHOD)
    done = bench("--contender", "hers:raising", "--json", "-")
    assert done.returncode == 1
    records = {record["claim"]: record for record in json.loads(done.stdout)}
    assert records["better"]["verdict"] == "holds"
    assert {e["contender"] for e in records["own:main"]["errors"]} == {"hers:raising"}
    assert "hers:raising failed in 6 of 6 cells: RuntimeError: no" in done.stderr


def test_a_method_that_does_not_know_the_work_may_say_nothing(planted, bench):
    planted.here(METHOD)
    own = _records(bench("--contender", "hers:silent", "--json", "-"))["own:main"]
    assert own["conditions"][0]["estimate"] is None
    assert own["errors"] == []


def test_a_timed_comparison_is_within_one_process(planted, bench):
    planted.here(
        """
        def process(work, cell):
            say(f"{os.getpid()} {cell.seed}")
            return {}
        METRIC = (Metric("seconds", "s"),)
        EXPERIMENTS = (experiment(
            contenders=(Contender("ours", process),), metrics=METRIC, claims=(),
            cases={"quick": (Case("one", {"n": 1.0}),)}, timed=Timing(repeats=2),
        ),)
        """
    )
    (bench.folder / "hers.py").write_text(
        "import os\n"
        "def process(work, cell):\n"
        "    with open(os.environ['PLANTED_LOG'], 'a') as file:\n"
        "        file.write(f'{os.getpid()} {cell.seed} hers\\n')\n"
        "    return {}\n"
    )
    records = _records(bench("--contender", "hers:process", "--json", "-"))
    ratio = records["own:main"]["conditions"][0]
    assert (ratio["metric"], ratio["of"], ratio["units"]) == ("seconds", "hers:process", 3)
    hers = {line.split()[0] for line in planted.logged() if line.endswith("hers")}
    ours = {line.split()[0] for line in planted.logged() if not line.endswith("hers")}
    assert len(hers) == 3
    assert hers < ours  # and three processes more that measured the method's own cells


@pytest.mark.slow
def test_the_report_shows_what_she_brought_and_no_path_of_hers(planted, bench, tmp_path):
    planted.here(METHOD)
    bench("--case", "mine.txt", "--contender", "hers:half")
    site = tmp_path / "site"
    done = subprocess.run(
        [sys.executable, "-m", "armillary", "report", "--store", str(planted.store), "-o", site],
        env=planted.environment(), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    page = (site / "methods" / "planted.html").read_text("utf-8")
    assert "Errors: your case mine.txt, with hers:half" in page
    assert "What you brought, shown by itself" in page
    assert str(tmp_path) not in page
    for rows in site.glob("data/*"):
        content = rows.read_bytes()
        text = gzip.decompress(content) if rows.suffix == ".gz" else content
        assert b"hers:half" in text
        assert str(tmp_path).encode() not in text


def test_a_reader_of_the_table_sees_her_line(planted, bench):
    planted.here(METHOD)
    lines = bench("--contender", "hers:half").stdout.splitlines()
    cells = next(line.split("\t") for line in lines if "own:main" in line)
    assert cells[2] == "no verdict"
    assert cells[3].startswith("error hers:half/ours 0.5 [0.5, 0.5]")
    assert cells[4] == ""


# ---- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["--contender", "hers"], "give module:function"),
        (["--contender", "hers:"], "give module:function"),
        (["--contender", "her s:half"], "give module:function"),
        (["--contender", "nobody:half"], "No module named 'nobody'"),
        (["--contender", "hers:whole"], "hers has no 'whole'"),
        (["--contender", "hers:number"], "is a int"),
        (["--contender", "broken:half"], "ZeroDivisionError"),
        (["--case", "none.txt"], "no such file"),
        (["--case", "."], "no such file"),
        (["--case", "empty.txt"], "'empty.txt': the file is empty: give one number a line"),
        (["--case", "binary.txt"], "'binary.txt': "),
        (["--contender", "hers:half", "--profile", "long"], "choose a larger profile"),
        (["--case", "mine.txt", "--write-evidence", "x"], "takes no --case"),
        (["--case", "mine.txt", "--all"], "not both"),
        (["other", "--case", "mine.txt"], "name just that one"),
    ],
)
def test_what_cannot_be_used_is_told_in_one_line(planted, bench, arguments, match):
    planted.here(METHOD)
    (bench.folder / "empty.txt").touch()
    (bench.folder / "binary.txt").write_bytes(b"\xff\xfe\x80")
    (bench.folder / "broken.py").write_text("1 / 0\n")
    done = bench(*arguments)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert match in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert not planted.store.exists()


@pytest.mark.parametrize(
    ("body", "match"),
    [
        ("EXPERIMENTS = (experiment(),)", "does not say how a file becomes a case"),
        (
            "EXPERIMENTS = (experiment(),)\ndef case_from_file(path):\n    return 'main'",
            "must give (experiment ids, Case)",
        ),
        (
            "EXPERIMENTS = (experiment(),)\n"
            "def case_from_file(path):\n    return ['other'], Case('x')",
            "['other'] are not among main",
        ),
    ],
)
def test_a_method_that_takes_no_file_is_told(planted, bench, body, match):
    planted.here(body)
    done = bench("--case", "mine.txt")
    assert done.returncode == 2
    assert match in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_claim_of_another_experiment_does_not_take_the_case(planted, bench):
    planted.here(
        METHOD
        + """
import dataclasses
EXPERIMENTS += (experiment("second", claims=(dataclasses.replace(BETTER, id="other"),)),)
"""
    )
    done = bench("--case", "mine.txt", "--claim", "other")
    assert done.returncode == 2
    assert "belongs to main, which is not among what is asked for: second" in done.stderr
    assert set(_records(bench("--case", "mine.txt", "--claim", "better", "--json", "-"))) == {
        "better", "own:main",
    }  # fmt: skip
