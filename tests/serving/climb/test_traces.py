"""Traffic: what is drawn, what is read, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from armillary.serving.climb.traces import azure_trace, multi_lora_trace, read_trace

GOOD = "t_s,adapter,class,prompt_tokens,output_tokens\n0,a,vip,3,4\n0.5,,background,1,2\n"


def test_drawn_traffic_has_the_shares_that_were_asked_for():
    drawn = multi_lora_trace(2000, 10, 12, vip_adapters=2, vip_share=0.3, seed=1000)
    assert len(drawn) == pytest.approx(20_000, abs=4 * np.sqrt(20_000))
    vip = drawn["class"] == "vip"
    assert vip.mean() == pytest.approx(0.3, abs=0.02)
    assert set(drawn["adapter"][vip]) == {"vip-0", "vip-1"}
    names, counts = np.unique(np.asarray(drawn["adapter"], str)[~vip], return_counts=True)
    assert len(names) == 10
    assert counts.max() / counts.min() < 1.3
    assert drawn["output_tokens"].mean() == pytest.approx(24, rel=0.05)
    assert drawn["t_s"].is_monotonic_increasing
    again = multi_lora_trace(2000, 10, 12, vip_adapters=2, vip_share=0.3, seed=1000)
    assert drawn.equals(again)


def test_zipf_prefers_the_first():
    drawn = multi_lora_trace(2000, 10, 10, vip_adapters=0, skew=1.0, seed=1000)
    counts = drawn["adapter"].value_counts()
    assert counts["bg-0"] / counts["bg-4"] == pytest.approx(5, rel=0.15)


def test_a_file_is_read_as_it_stands(tmp_path):
    (tmp_path / "t.csv").write_text(GOOD)
    table = read_trace(tmp_path / "t.csv")
    assert table["adapter"].tolist() == ["a", ""]
    assert table["t_s"].tolist() == [0.0, 0.5]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("0.1,a,vip,3,4", "line 4: t_s"),
        ("nan,a,vip,3,4", "line 4: t_s"),
        ("1,a,gold,3,4", "line 4: class is 'gold'"),
        ("1,a,vip,-3,4", "line 4: prompt_tokens"),
        ("1,a,vip,3,many", "line 4: output_tokens"),
    ],
)
def test_bad_lines_are_named(tmp_path, line, said):
    (tmp_path / "t.csv").write_text(GOOD + line + "\n")
    with pytest.raises(ValueError, match=said):
        read_trace(tmp_path / "t.csv")


def test_missing_columns_are_named(tmp_path):
    (tmp_path / "t.csv").write_text("t_s,adapter\n0,a\n")
    with pytest.raises(ValueError, match="lacks the columns class, prompt_tokens, output_tokens"):
        read_trace(tmp_path / "t.csv")
    (tmp_path / "a.csv").write_text("TIMESTAMP,GeneratedTokens\n2023-11-16 18:15:46.68059,44\n")
    with pytest.raises(ValueError, match="lacks the columns ContextTokens"):
        azure_trace(tmp_path / "a.csv", 3)


def test_azure_arrivals_are_stretched_to_a_rate(tmp_path):
    rows = "".join(f"2023-11-16 18:15:{s:02d}.5000000,{100 + s},{s + 1}\n" for s in range(50))
    (tmp_path / "a.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows)
    table = azure_trace(tmp_path / "a.csv", 4, rate=10.0, most_output=20, seed=1)
    assert table["t_s"].iloc[-1] == pytest.approx(5.0)
    assert table["prompt_tokens"].tolist() == list(range(100, 150))
    assert table["output_tokens"].max() == 20


@pytest.mark.parametrize(
    "wrong", [{"rate": 0}, {"seconds": -1}, {"vip_share": 2}, {"vip_adapters": 9}]
)
def test_figures_out_of_range_are_told(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        multi_lora_trace(**{"seconds": 10, "rate": 1, "working_set": 4, **wrong})
