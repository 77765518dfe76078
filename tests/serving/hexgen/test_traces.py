"""Traces: what is read, what is refused, and the moments that decide capacities."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from armillary.serving.hexgen import Slo, Workload
from armillary.serving.hexgen.columns import Demand
from armillary.serving.hexgen.traces import LENGTHS

HEAD = "t_s,input_tokens,output_tokens\n"


def trace(tmp_path, text: str):
    path = tmp_path / "trace.csv"
    path.write_text(text)
    return path


def test_csv_is_read_with_prefill_only_rows(tmp_path) -> None:
    found = Workload.from_csv(trace(tmp_path, HEAD + "0,100,0\n1.5,20,7\n"))
    assert found.t.tolist() == [0.0, 1.5]
    assert found.outputs.tolist() == [0, 7]
    assert found.rate == pytest.approx(1 / 1.5)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("1,10,5\n0.5,10,5\n", r"line 3: t_s=0.5 is before"),
        ("0,10,5\n1,-3,5\n", r"line 3: input_tokens=-3"),
        ("0,10,5\nnan,10,5\n", r"line 3: t_s=nan"),
        ("0,10,5\n1,ten,5\n", r"line 3: input_tokens='ten' is no number"),
        ("0,0,5\n1,10,5\n", r"line 2: input_tokens must be 1"),
        ("0,10,5\n1,10\n", r"line 3: output_tokens=None is no number"),
        ("0,10,5\n", "two are needed"),
    ],
)
def test_broken_rows_are_named_by_line(tmp_path, rows: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Workload.from_csv(trace(tmp_path, HEAD + rows))


def test_missing_columns_and_files_are_told(tmp_path) -> None:
    with pytest.raises(ValueError, match="output_tokens are missing"):
        Workload.from_csv(trace(tmp_path, "t_s,input_tokens\n0,1\n"))
    with pytest.raises(FileNotFoundError, match="no such trace"):
        Workload.from_csv(tmp_path / "none.csv")


def test_azure_and_mooncake_forms(tmp_path) -> None:
    path = trace(
        tmp_path,
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:50.9951690,396,109\n"
        "2023-11-16 18:15:46.6805900,374,44\n",
    )
    found = Workload.from_azure(path)
    assert found.t[1] - found.t[0] == pytest.approx(4.314579, abs=1e-5)
    assert found.inputs.tolist() == [374, 396]
    lines = [{"timestamp": 0, "input_length": 5, "output_length": 2}] * 2
    other = tmp_path / "m.jsonl"
    other.write_text("\n".join(json.dumps(line) for line in lines))
    assert Workload.from_mooncake(other).outputs.tolist() == [2, 2]
    other.write_text("{}\n{}")
    with pytest.raises(ValueError, match="line 1"):
        Workload.from_mooncake(other)


@pytest.mark.skipif("ARMILLARY_DATA" not in os.environ, reason="ARMILLARY_DATA is not set")
def test_azure_conversation_has_its_published_moments() -> None:
    found = Workload.from_azure()
    assert len(found) == 19366
    assert found.inputs.mean() == pytest.approx(1155, abs=1)
    assert found.outputs.mean() == pytest.approx(211, abs=1)
    assert np.median(found.inputs) == 1020


@pytest.mark.parametrize("kind", LENGTHS)
def test_synthetic_lengths_have_their_stated_moments(kind: str) -> None:
    found = Workload.synthetic_of(kind, 40_000, 5.0, 1)
    for values, (mean, median) in zip((found.inputs, found.outputs), LENGTHS[kind], strict=True):
        assert np.median(values) == pytest.approx(median, rel=0.03)
        assert values.mean() == pytest.approx(mean, rel=0.08)  # the longest are cut
    assert found.rate == pytest.approx(5.0, rel=0.03)
    assert found.synthetic


def test_moments_of_contexts_match_a_walk_over_tokens() -> None:
    rng = np.random.default_rng(0)
    work = Workload(np.arange(50.0), rng.integers(1, 300, 50), rng.integers(0, 40, 50))
    contexts = [
        i + j for i, o in zip(work.inputs, work.outputs, strict=True) for j in range(1, max(o, 1))
    ]
    found = Demand.of(work)
    assert found.steps == pytest.approx(len(contexts) / 50)
    assert found.context == pytest.approx(np.mean(contexts))
    assert found.context_sd == pytest.approx(np.std(contexts))


def test_stretching_keeps_the_pattern() -> None:
    work = Workload.synthetic_of("wildgpt", 100, 3.0, 2)
    fast = work.at_rate(30.0)
    assert fast.rate == pytest.approx(30.0)
    assert np.diff(fast.t) == pytest.approx(np.diff(work.t) * work.rate / 30)


def test_slo_is_parsed_and_checked() -> None:
    assert Slo.parse("2s,50ms") == Slo(2.0, 50.0)
    assert Slo.parse("500ms, 0.05s") == Slo(0.5, 50.0)
    for text in ("2s", "2s,fast", "0s,50ms"):
        with pytest.raises(ValueError):
            Slo.parse(text)
