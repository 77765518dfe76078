"""``armillary climb``: what it writes, and what it says of bad input."""

from __future__ import annotations

import csv
import json

import pytest

from armillary.cli.root import run

TRACE = (
    "t_s,adapter,class,prompt_tokens,output_tokens\n"
    "0,a,vip,8,8\n0.1,b,background,8,8\n0.2,,background,8,8\n"
)


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(TRACE)
    return path


def test_sim_compares_policies_on_your_trace(trace, tmp_path):
    out, each = tmp_path / "o.json", tmp_path / "each.csv"
    arguments = [str(trace), "--slots", "2", "--policies", "all", "-o", str(out)]
    assert run(["climb", "sim", *arguments, "--requests", str(each)]) == 0
    rows = json.loads(out.read_text())
    assert [row["policy"] for row in rows][:2] == ["climb", "fcfs"]
    assert all(row["loads"] == 2 for row in rows)
    assert {row["policy"]: row["unasked_misses"] for row in rows}["climb"] == 0
    # All fit, so that no load is put off: two loads of 0.35 s, then a step of three requests.
    assert rows[0]["vip_ttft_p50"] == pytest.approx(2 * 0.35 + 0.020 + 3 * 0.0006, abs=1e-9)
    assert len(list(csv.reader(each.open()))) == 4


def test_cliff_draws_the_tail_over_the_working_set(tmp_path):
    out, chart = tmp_path / "c.csv", tmp_path / "c.svg"
    arguments = ["--slots", "2", "--seconds", "40", "-o", str(out), "--chart", str(chart)]
    assert run(["climb", "cliff", *arguments]) == 0
    rows = list(csv.DictReader(out.open()))
    tail = {(r["policy"], int(r["working_set"])): float(r["vip_ttft_p99"]) for r in rows}
    assert tail["fcfs", 8] > 3 * tail["climb", 8]
    lost = {int(r["working_set"]): float(r["time_lost_to_loads"]) for r in rows}
    assert lost[2] == 0
    assert lost[8] == pytest.approx(10.66 * 0.75 * 0.35)
    assert "<svg" in chart.read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sim", "none.csv", "-o", "o.csv"], "none.csv"),
        (["sim", "TRACE", "-o", "o.txt"], "ends in .csv"),
        (["sim", "TRACE", "-o", "o.csv", "--policies", "magic"], "known are climb"),
        (["sim", "TRACE", "-o", "o.csv", "--engine", "TRACE"], "no JSON"),
        (["serve", "--upstream", "nowhere"], "http://host:port"),
        (["serve", "--upstream", "http://127.0.0.1:9", "--slots", "many"], "--slots"),
        (["replay", "TRACE", "--target", "nowhere", "-o", "o.csv"], "--target"),
        (["calibrate", "--url", "http://x", "--slots", "1", "--adapters", "a", "--base-model",
          "m", "-o", "e.json"], "at least two"),
    ],
)  # fmt: skip
def test_bad_input_is_told_in_one_line(trace, tmp_path, monkeypatch, arguments, said, capsys):
    monkeypatch.chdir(tmp_path)
    given = [str(trace) if part == "TRACE" else part for part in arguments]
    assert run(["climb", *given]) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert "Traceback" not in shown
