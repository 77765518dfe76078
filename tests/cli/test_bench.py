"""`armillary bench`: what it prints where, what it writes, and its exit codes."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from armillary.cli import bench, verdict_table
from armillary.evidence.bundle import Bundle
from armillary.evidence.store import Store

FAILING = """
EXPERIMENTS = (experiment(contenders=(Contender("ours", peer), Contender("peer", ours))),)
"""
RAISING = """
def bad(work, cell):
    raise RuntimeError("no, at http://me:word@host/")
EXPERIMENTS = (experiment(
    contenders=(Contender("ours", ours), Contender("peer", peer), Contender("bad", bad)),
),)
"""


def on_a_terminal(planted, columns: int, *arguments: str, **more: str) -> tuple[int, str]:
    """Run the command with stdout on a terminal of a width; gives its exit code and output."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = planted.environment(TERM="dumb", **more)
    environment.pop("COLUMNS", None)
    process = subprocess.Popen(
        planted.command(*arguments), stdin=child, stdout=child, stderr=subprocess.DEVNULL,
        env=environment,
    )  # fmt: skip
    os.close(child)
    output = b""
    while True:
        try:
            data = os.read(parent, 4096)
        except OSError:  # the terminal's other end is closed
            break
        if not data:
            break
        output += data
    os.close(parent)
    return process.wait(60), output.decode("utf-8").replace("\r\n", "\n")


def test_a_pipe_gets_one_line_a_claim_with_tabs(planted):
    planted.here()
    done = planted.bench()
    assert done.returncode == 0
    head, line = done.stdout.splitlines()
    assert head.split("\t") == ["method", "claim", "verdict", "figure", "target", "reason"]
    cells = line.split("\t")
    assert cells[:3] == ["planted", "better", "holds"]
    assert cells[3].startswith("error ours/peer 0.5 [")
    assert cells[4] == "<= 0.9"


def test_json_on_stdout_is_only_json_and_in_a_file_the_same(planted, tmp_path):
    planted.here(RAISING)
    done = planted.bench("--json", "-")
    claims = json.loads(done.stdout)
    assert [(c["method"], c["claim"], c["verdict"]) for c in claims] == [
        ("planted", "better", "holds")
    ]
    assert "bad failed in 6 of 6 cells: RuntimeError: no, at http://***@host/" in done.stderr
    planted.bench("--json", str(tmp_path / "out put.json"))
    assert json.loads((tmp_path / "out put.json").read_text("utf-8")) == claims


@pytest.mark.parametrize(
    ("body", "arguments", "code"),
    [
        ("EXPERIMENTS = (experiment(),)", ["--strict"], 0),
        (FAILING, [], 0),
        (FAILING, ["--strict"], 1),
        (RAISING, [], 1),
        ("EXPERIMENTS = (experiment(),)", ["--profile", "long"], 3),
        ("EXPERIMENTS = (experiment(),)", ["--profile", "fast"], 2),
        ("EXPERIMENTS = (experiment(),)", ["--claim", "best"], 2),
        ("EXPERIMENTS = (experiment(),)", ["--seed-base", "-1"], 2),
        ("EXPERIMENTS = (experiment(),)", ["--workers", "0"], 2),
        ("EXPERIMENTS = (experiment(),)", ["--peer", "nothing"], 2),
        ("EXPERIMENTS = (experiment(),)", ["--peer", "lab=/no/such"], 2),
        ("EXPERIMENTS = (experiment(),)", ["--data", "/no/such"], 2),
        ("EXPERIMENTS = (experiment(),)", ["--json", "/no/such/x.json"], 2),
        ("EXPERIMENTS = (experiment(),)", ["--all"], 2),
        ("EXPERIMENTS = (experiment(),)", ["--claim", "better", "--write-evidence", "x"], 2),
        ("EXPERIMENTS = (experiment(),)", ["--dry-run", "--json", "-"], 2),
        ("EXPERIMENTS = (experiment(),)", ["nobody"], 2),
        ("EXPERIMENTS = (experiment(claims=()), experiment())", [], 2),
    ],
)
def test_exit_codes(planted, body, arguments, code):
    planted.here(body)
    done = planted.bench(*arguments)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    if code == 2:
        assert done.stdout == ""
        assert not planted.store.exists(), "a wrong command measures nothing"


def test_no_slug_says_what_to_type(planted):
    planted.here()
    done = subprocess.run(
        [*planted.command()[:4]], env=planted.environment(), capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "armillary list" in done.stderr


def test_all_measures_every_method_and_leaves_out_what_is_not_installed(planted):
    planted.here()
    planted.write(slug="other-one")
    planted.write(slug="absent")
    card = planted.folder / "planted_absent" / "card.py"
    card.write_text(
        card.read_text().replace('("better",))', '("better",), "lab", ("no_such_module",))')
    )
    alone = (  # without the methods that are built in: their evidence has tests of its own
        "import sys; from armillary import catalog; catalog.BUILT_IN = (); "
        "from armillary.cli import main; main()"
    )
    words = [word for word in planted.command("--all")[3:] if word != "planted"]
    command = [sys.executable, "-c", alone, *words]
    done = subprocess.run(command, env=planted.environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = {line.split("\t")[0] for line in done.stdout.splitlines()[1:]}
    assert {"planted", "other-one"} <= found
    assert "absent" not in found
    assert "absent needs the extra 'lab': pip install 'armillary[lab]'" in done.stderr


def test_a_dry_run_measures_nothing_and_tells_what_it_would(planted):
    planted.here(
        """
        need = (Need("extra", "no_such_module", "pip install no-such"),)
        EXPERIMENTS = (
            experiment(contenders=(
                Contender("ours", ours), Contender("peer", peer), Contender("lab", peer, need),
            )),
            experiment("clock", claims=(), timed=Timing()),
        )
        """
    )
    done = planted.bench("--dry-run")
    assert done.returncode == 0
    assert not planted.store.exists()
    assert "to measure: 24 cells in 12 groups" in done.stdout
    assert "time: not known yet" in done.stdout
    assert "clock, timed: 6 groups" in done.stdout
    assert "missing for main: lab: extra no_such_module: pip install no-such" in done.stdout


def test_a_dry_run_estimates_from_what_was_measured_before(planted):
    body = """
    def slow(work, cell):
        time.sleep(0.2)
        return {"error": 1.0}
    EXPERIMENTS = (experiment(
        contenders=(Contender("ours", slow), Contender("peer", slow)), seeds={"quick": 1},
    ),)
    """
    planted.here(body)
    planted.bench()
    assert "time: nothing to do" in planted.bench("--dry-run").stdout
    with Store(planted.store, read_only=True) as store:
        known = store.typical_seconds("planted", "main", "quick")
    assert set(known) == {"one", "two"}
    assert all(0.4 <= seconds < 10 for seconds in known.values())
    planted.here(body.replace('"quick": 1', '"quick": 9'))  # new code: all is to be done again
    told = bench.duration(9 * sum(known.values()))
    assert f"time: about {told}" in planted.bench("--dry-run").stdout


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0.2, "a second"), (42.4, "42 s"), (89, "89 s"), (600, "10 min"), (9000, "2.5 h")],
)
def test_durations_are_said_in_the_unit_one_would_use(seconds, told):
    assert bench.duration(seconds) == told


def test_written_evidence_reads_back_and_names_no_path(planted, tmp_path):
    planted.here(RAISING)
    done = planted.bench("--write-evidence", str(tmp_path / "evidence"))
    folder = tmp_path / "evidence" / "planted"
    assert sorted(p.name for p in folder.iterdir()) == [
        "claims.json", "environment.json", "rows.csv.gz",
    ]  # fmt: skip
    read = Bundle.read(folder)
    assert len(read.rows) == 18
    assert [c["claim"] for c in read.claims] == ["better"]
    assert read.environment["method"] == "planted"
    text = (folder / "environment.json").read_text() + (folder / "claims.json").read_text()
    text += str(read.rows)
    assert str(tmp_path) not in text
    assert "word" not in text
    assert str(folder) in done.stderr


def test_evidence_of_the_long_profile_stands_beside_the_full_one():
    full = Bundle("planted", "full", [], [], {})
    assert bench.evidence_place(full) == Path("planted")
    assert bench.evidence_place(dataclasses.replace(full, profile="long")) == Path("planted/long")


def test_a_narrow_terminal_is_not_overrun(planted):
    planted.here()
    code, output = on_a_terminal(planted, 40)
    assert code == 0
    lines = output.splitlines()
    assert max(map(len, lines)) <= 40
    assert lines[0] == "planted, better: holds"
    assert "target <= 0.9" in lines[2]


def test_a_wide_terminal_gets_a_table(planted):
    planted.here()
    code, output = on_a_terminal(planted, 120)
    assert code == 0
    assert max(map(len, output.splitlines())) <= 120
    (line,) = [line for line in output.splitlines() if "holds" in line]
    assert "better" in line
    assert "<= 0.9" in line


@pytest.mark.parametrize("columns", [40, 120])
def test_a_locale_without_utf8_is_no_hindrance(planted, columns):
    planted.here(
        """
        import dataclasses
        claim = dataclasses.replace(BETTER, id="größer 🪐")
        EXPERIMENTS = (experiment(claims=(claim,)),)
        """
    )
    poor = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    code, output = on_a_terminal(planted, columns, **poor, PYTHONIOENCODING="ascii")
    assert code == 0
    assert output.isascii()
    assert "gr??er ?" in output
    assert "holds" in output
    done = planted.bench("--json", "-", **poor)
    assert done.returncode == 0


def test_a_reader_that_goes_away_early_is_no_crash(planted):
    planted.here()
    process = subprocess.Popen(
        planted.command(), env=planted.environment(), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    _, said = process.communicate(timeout=60)
    assert "Traceback" not in said
    assert len(planted.rows()) == 12


def condition(**given):
    return {
        "metric": "error", "form": "ratio", "of": "ours", "over": "peer", "at_most": 0.9,
        "at_least": None, "estimate": 0.5, "low": 0.4, "high": 0.6, "status": "met",
    } | given  # fmt: skip


@pytest.mark.parametrize(
    ("given", "figure", "target"),
    [
        ({}, "error ours/peer 0.5 [0.4, 0.6]", "<= 0.9"),
        (
            {"form": "difference", "at_most": None, "at_least": 4},
            "error ours - peer 0.5 [0.4, 0.6]",
            ">= 4",
        ),
        (
            {"form": "level", "over": None, "low": None, "at_least": 0.88},
            "error ours 0.5",
            "0.88 to 0.9",
        ),
        (
            {"form": "slope", "over": None, "along": "n"},
            "error ours against n 0.5 [0.4, 0.6]",
            "<= 0.9",
        ),
        ({"estimate": None}, "error ours/peer: no figure", "<= 0.9"),
        (
            {"every": True, "form": "level", "over": ""},
            "error ours 0.5 [0.4, 0.6]",
            "<= 0.9 in every cell",
        ),
    ],
)
def test_a_condition_in_words(given, figure, target):
    assert verdict_table.figure(condition(**given)) == figure
    assert verdict_table.target(condition(**given)) == target


def test_the_condition_that_decides_is_shown():
    conditions = [
        condition(over="easy"),
        condition(over="tight", tightest=True),
        condition(over="lost", status="missed"),
    ]
    figures = verdict_table._figure_and_target
    assert "lost" in figures({"conditions": conditions})[0]
    worst = condition(over="worst", status="missed", high=1.2)
    assert "worst" in figures({"conditions": [*conditions, worst]})[0]
    assert "tight" in figures({"conditions": conditions[:2]})[0]
    assert figures({"conditions": []}) == ("", "")
