"""The command on a user's files: what it writes, and what it refuses."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from armillary.cli.root import run
from armillary.serving.hexgen import Workload

MODEL = "Qwen/Qwen3-30B-A3B"


@pytest.fixture
def trace(tmp_path):
    work = Workload.synthetic_of("wildgpt", 400, 20.0, 1000)
    rows = zip(work.t, work.inputs, work.outputs, strict=True)
    text = "\n".join(f"{t:.4f},{i},{o}" for t, i, o in rows)
    (tmp_path / "trace.csv").write_text(f"t_s,input_tokens,output_tokens\n{text}\n")
    return tmp_path / "trace.csv"


def hexgen(*arguments: object) -> int:
    return run(["hexgen", *map(str, arguments)])


def test_plan_and_sim(trace, tmp_path, capsys) -> None:
    out = tmp_path / "plan.json"
    common = ("--model", MODEL, "--trace", trace, "--prices", "paper")
    assert hexgen("plan", *common, "--budget", 12.28, "-o", out) == 0
    said = capsys.readouterr().out
    assert "USD an hour" in said
    assert "no measurement, a roofline" in said
    plan = json.loads(out.read_text())
    assert plan["price_per_hour"] <= 12.28
    table, summary = tmp_path / "r.parquet", tmp_path / "s.json"
    chart = tmp_path / "c.svg"
    assert (
        hexgen("sim", out, trace, "-o", table, "--summary", summary, "--chart", chart,
               "--rate", 30, "--router", "two") == 0
    )  # fmt: skip
    assert len(pd.read_parquet(table)) == 400
    assert json.loads(summary.read_text())["figures"]["requests"] == 400
    assert chart.read_text().startswith("<svg")
    assert hexgen("sim", out, trace, "-o", tmp_path / "r.csv") == 0
    assert len(pd.read_csv(tmp_path / "r.csv")) == 400


def test_a_rate_is_closed_in_the_simulator(trace, tmp_path, capsys) -> None:
    out = tmp_path / "plan.json"
    common = ("--model", MODEL, "--trace", trace, "--prices", "paper")
    assert hexgen("plan", *common, "-o", out) == 0
    assert "meet both targets" in capsys.readouterr().out
    assert hexgen("plan", *common, "--rate", 5, "--no-close", "--modes", "agg", "-o", out) == 0
    assert all(c["kind"] == "agg" for c in json.loads(out.read_text())["fleet"])


def test_own_gpus_and_config(trace, tmp_path) -> None:
    (tmp_path / "gpus.yaml").write_text("gpus: {a100: {price: 1.0, inventory: 4}}")
    config = {
        "num_hidden_layers": 16, "hidden_size": 2048, "num_attention_heads": 32,
        "num_key_value_heads": 8, "intermediate_size": 8192, "vocab_size": 128256, "head_dim": 64,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    out = tmp_path / "plan.json"
    assert (
        hexgen("plan", "--model", tmp_path / "config.json", "--gpus", tmp_path / "gpus.yaml",
               "--trace", trace, "--budget", 4, "-o", out) == 0
    )  # fmt: skip
    assert set(json.loads(out.read_text())["gpus"]) == {"a100"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--budget", 0.5), "cheapest fleet"),
        (("--slo", "2s,0.1ms"), "TPOT floor"),
        (("--slo", "soon"), "two times"),
        (("--budget", 5, "--rate", 5), "give one of them"),
        (("--prices", "tomorrow"), "no such price book"),
        (("--modes", "magic"), "unknown"),
        (("--gpus", "none.yaml"), "no such catalogue"),
        (("-o", "plan.txt"), "must end in .json"),
        (("--model", "none"), "neither a file nor a known name"),
    ],
)
def test_bad_arguments_are_told_and_exit_2(trace, capsys, arguments, message) -> None:
    common = ("--model", MODEL, "--trace", trace)
    assert hexgen("plan", *common, *arguments) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert message in said
    assert "Traceback" not in said


def test_broken_traces_and_plans_are_told(trace, tmp_path, capsys) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text("t_s,input_tokens,output_tokens\n1,10,5\n0,10,5\n")
    assert hexgen("plan", "--model", MODEL, "--trace", bad, "--budget", 9) == 2
    assert "line 3" in capsys.readouterr().err
    bad.write_text("[]")
    assert hexgen("sim", bad, trace) == 2
    assert "no plan" in capsys.readouterr().err
    assert hexgen("sim", tmp_path / "none.json", trace) == 2


def test_deploy_writes_what_starts_the_plan(trace, tmp_path) -> None:
    out = tmp_path / "plan.json"
    common = ("--model", MODEL, "--trace", trace, "--prices", "paper", "--modes", "agg")
    assert hexgen("plan", *common, "--budget", 12.28, "-o", out) == 0
    fleet = json.loads(out.read_text())["fleet"]
    assert hexgen("deploy", out, "-o", tmp_path / "start.sh") == 0
    lines = (tmp_path / "start.sh").read_text().splitlines()
    assert sum("vllm serve" in line for line in lines) == sum(c["count"] for c in fleet)
    assert hexgen("deploy", out, "--target", "ray", "-o", tmp_path / "serve.json") == 0
    found = json.loads((tmp_path / "serve.json").read_text())
    assert len(found["applications"]) == len(fleet)
    assert hexgen("deploy", out, "--target", "moon", "-o", tmp_path / "x.sh") == 2


def test_autoscale(trace, tmp_path, capsys) -> None:
    summary = tmp_path / "s.json"
    common = ("autoscale", trace, "--model", MODEL, "--prices", "paper")
    assert hexgen(*common, "--summary", summary, "-o", tmp_path / "r.csv") == 0
    assert json.loads(summary.read_text())["figures"]["requests"] == 400
    assert hexgen(*common, "--policy", "magic") == 2
    assert "it must be transition-aware" in capsys.readouterr().err
    assert hexgen(*common, "--policy", "hpa", "--yesterday", trace) == 2
