"""``armillary report`` from its command line, on evidence that was judged and stored for real."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from armillary.cli import root
from armillary.errors import ExitCode
from armillary.evidence.bundle import Bundle
from armillary.evidence.shapes import (
    Ablation,
    Case,
    Claim,
    Condition,
    Contender,
    Experiment,
    Metric,
    Row,
    Stat,
    Timing,
)
from armillary.evidence.store import Store
from armillary.evidence.verdicts import judge

LOSS = {"ours": 1.0, "peer": 1.5, "no part": 1.2, "absent peer": None}


def _experiment() -> Experiment:
    contenders = tuple(
        Contender(name, lambda work, cell: {}, required=name != "absent peer") for name in LOSS
    )
    claims = (
        Claim(
            "loss",
            "The loss is at least a fifth below the peer's.",
            "0.7 of the peer's",
            (Condition(Stat("loss", over=("peer", "absent peer"), form="ratio", pool="geomean"),
                       at_most=0.8),),
            (Ablation("no part", "loss", margin=0.05),),
        ),
        Claim("never", "The loss is below a half.", "", (Condition(Stat("loss"), at_most=0.5),)),
        Claim(
            "growth", "The loss does not grow.", "",
            (Condition(Stat("loss", form="slope", along="n"), at_most=0.5),),
        ),
    )  # fmt: skip
    return Experiment(
        "e", {"quick": [Case(f"n={n}", {"n": n}) for n in (10, 100, 1000)]}, lambda cell: None,
        contenders, (Metric("loss", "nats"),), claims, {"quick": 6}, timed=Timing(repeats=2),
    )  # fmt: skip


def _rows() -> list[Row]:
    rows = []
    for case in ("n=10", "n=100", "n=1000"):
        for seed in range(6):
            for who, loss in LOSS.items():
                key = ("planted", "e", "quick", case, seed, who)
                if loss is None:
                    rows.append(Row(*key, 0, "not run", "extra", "pip install peer"))
                else:
                    rows += [
                        Row(*key, repeat, metrics={"loss": loss * (1 + 0.01 * (seed % 3))})
                        for repeat in (0, 1)
                    ]
    return rows


def _bundle() -> Bundle:
    experiment = _experiment()
    claims = judge(experiment, _rows(), "quick", command="armillary bench planted --profile quick")
    environment = {
        "method": "planted", "profile": "quick", "machine": {"cpu": "a processor", "cores": 2},
        "finished": "2026-11-30T12:00:00+00:00",
        "experiments": {"e": {
            "title": "", "unit": experiment.unit, "timed": {"repeats": 2},
            "metrics": [{"name": "loss", "unit": "nats", "better": "lower"}],
            "contenders": [{"name": c.name, "required": c.required} for c in experiment.contenders],
            "cases": [{"name": c.name, "x": dict(c.x)} for c in experiment.cases["quick"]],
        }},
    }  # fmt: skip
    return Bundle("planted", "quick", claims, _rows(), environment)


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """A store that holds the run of `_bundle`."""
    bundle, path = _bundle(), tmp_path / "evidence.sqlite"
    with Store(path) as store:
        plan = {"e": {"fingerprint": "f", "seeds": list(range(6))}}
        number = store.begin_run("planted", "quick", plan=plan, environment=bundle.environment)
        store.put("f", bundle.rows)
        store.finish_run(number, seconds=1, environment=bundle.environment, claims=bundle.claims)
    return path


def test_a_judged_and_stored_run_becomes_a_page(
    stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "my report"
    asked = ["report", "planted", "-o", str(out), "--store", str(stored)]
    assert root.run(asked) == ExitCode.OK
    assert capsys.readouterr().out.strip() == str(out / "index.html")
    overview = (out / "index.html").read_text("utf-8")
    states = re.findall(r'<tr role="row" data-state="([^"]+)"', overview)
    assert states == ["holds", "fails", "holds"]
    assert "0.667" in overview  # 1 to 1.5, in every cell
    page = (out / "methods" / "planted.html").read_text("utf-8")
    assert "0.7 of the peer&#39;s" in page
    assert "<code>pip install peer</code>" in page  # the optional peer was absent
    assert "loss against n" in page
    assert re.search(r"no part.*?<b>1\.20</b>.*?hurts", page, re.S)
    assert "profile quick · a processor, 2 cores · 30 Nov 2026" in page


def test_nothing_heavy_is_loaded_before_a_report_is_built() -> None:
    code = (
        "import sys, armillary.report, armillary.cli.report\n"
        "heavy = {'jinja2', 'vl_convert', 'sqlalchemy', 'numpy', 'pandas', 'torch'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_folder_of_evidence_is_shown_beside_the_store(stored: Path, tmp_path: Path) -> None:
    folder = _bundle().write(tmp_path / "given")
    out = tmp_path / "out"
    arguments = ["report", "-o", str(out), "--store", str(stored), "--bundle", str(folder)]
    assert root.run(arguments) == ExitCode.OK
    page = (out / "methods" / "planted.html").read_text("utf-8")
    assert "Your run 2" in page


def test_without_a_store_there_is_still_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert root.run(["report"]) == ExitCode.OK
    assert (tmp_path / "armillary-report" / "index.html").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--store", "nowhere.sqlite"], "no store at"),
        (["--bundle", "nowhere"], "No such file or directory"),
        (["no-such-method"], "no method 'no-such-method'"),
        (["-o", "thesis"], "holds something that is not a report"),
        (["--serve", "70000"], "Invalid value for '--serve'"),
        (["--serve", "http"], "Invalid value for '--serve'"),
    ],
)
def test_bad_input_is_told_in_a_line_and_exits_2(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").touch()
    assert root.run(["report", *arguments]) == ExitCode.BAD_INPUT
    said = capsys.readouterr().err
    assert message in said
    assert "Traceback" not in said


def test_a_taken_port_exits_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        code = root.run(["report", "-o", str(tmp_path / "out"), "--serve", port])
    assert code == ExitCode.BAD_INPUT
    assert f"port {port} is in use" in capsys.readouterr().err


def test_it_opens_the_browser_on_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or False)
    out = tmp_path / "my report"
    assert root.run(["report", "-o", str(out), "--open"]) == ExitCode.OK
    assert opened == [(out / "index.html").as_uri()]
    assert "%20" in opened[0]
    assert "no browser was found" in capsys.readouterr().err


def test_it_serves_on_loopback_until_interrupted(tmp_path: Path) -> None:
    arguments = ["report", "-o", str(tmp_path / "out"), "--serve", "0"]
    with subprocess.Popen(
        [sys.executable, "-m", "armillary", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip().endswith("index.html")
        url = process.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", url)
        with urllib.request.urlopen(url, timeout=10) as answer:
            assert b"Every claim" in answer.read()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=10)
    assert process.returncode == ExitCode.INTERRUPTED
    assert "Traceback" not in errors
