"""Operator times: interpolation, floors, and the refusal of the impossible."""

from __future__ import annotations

import dataclasses
import os

import numpy as np
import pytest

from armillary.serving.hexgen import Catalog, ModelShape, OpTable, PhysicalityError
from armillary.serving.hexgen.steptimes import step_times

LLAMA = "meta-llama/Meta-Llama-3.1-8B"


@pytest.fixture(scope="module")
def table() -> OpTable:
    return OpTable.measured(Catalog.load()["h100"])


def test_published_parameter_counts() -> None:
    assert ModelShape.load(LLAMA).params == pytest.approx(8.03e9, rel=1e-3)
    assert ModelShape.load("Qwen/Qwen3-30B-A3B").params == pytest.approx(30.53e9, rel=1e-3)
    assert ModelShape.load("Qwen/Qwen3-32B").params == pytest.approx(32.76e9, rel=1e-3)
    assert ModelShape.load(LLAMA).kv_bytes == 131072


def test_gemm_on_the_grid_is_the_measurement(table: OpTable) -> None:
    """A row of the table itself: m = 1, n = 6144, k = 4096 took 19.9 us on an H100."""
    found = table.gemm(np.array([1.0]), 6144, 4096)
    assert found[0] == pytest.approx(19.898666e-6, rel=1e-4)


def test_gemm_between_grid_points_lies_between_them(table: OpTable) -> None:
    m = np.array([64.0, 512.0])
    low, middle, high = (table.gemm(m, n, 4096) for n in (4096, 4600, 5120))
    assert (low <= middle).all()
    assert (middle <= high).all()


def test_no_operator_is_faster_than_its_bytes() -> None:
    for gpu in Catalog.load().gpus.values():
        table = OpTable.measured(gpu)
        m = np.array([1.0, 8.0, 64.0])
        for n, k in ((2048, 2048), (28672, 4096), (300, 5000)):
            assert (table.gemm(m, n, k) >= 2 * n * k / gpu.bandwidth).all()
        batch, _, slope, _ = table.decode_attention(32, 8, 128)
        assert (slope >= 2 * 2 * 8 * 128 / gpu.bandwidth * (1 - 1e-9)).all()
        assert len(batch) >= 2


def test_beyond_the_grid_time_grows_with_the_work_and_is_counted(table: OpTable) -> None:
    before = table.clamped
    one, two = table.gemm(np.array([1e5]), 4096, 4096), table.gemm(np.array([2e5]), 4096, 4096)
    assert two[0] / one[0] == pytest.approx(2.0)
    assert table.clamped > before


def test_roofline_of_a_measured_gpu_is_near_its_measurements() -> None:
    """What stands in for the H20 is tried on the H200, whose table it does not see."""
    gpu = Catalog.load()["h200"]
    measured = OpTable.measured(gpu)
    roofline = OpTable.measured(dataclasses.replace(gpu, table=""))
    for n, k in ((6144, 4096), (28672, 4096), (4096, 14336)):
        m = np.array([1.0, 16.0, 2048.0, 8192.0])
        ratio = roofline.gemm(m, n, k) / measured.gemm(m, n, k)
        assert (ratio > 0.7).all()
        assert (ratio < 1.4).all()
    assert roofline.estimated == {"gemm"}
    assert not measured.estimated


def test_every_replica_respects_its_floor() -> None:
    for book in ("list", "paper"):
        for gpu in Catalog.load(book=book).gpus.values():
            for name in (LLAMA, "Qwen/Qwen3-30B-A3B"):
                for tp in (1, 2, 8):
                    times = step_times(ModelShape.load(name), gpu, tp)
                    assert times is not None
                    times.check_floor()


def test_times_below_the_floor_are_refused() -> None:
    times = step_times(ModelShape.load(LLAMA), Catalog.load()["h100"], 1)
    assert times is not None
    wrong = dataclasses.replace(
        times, attention=times.attention * 0, ffn=times.ffn * 0, head=times.head * 0, overhead=0.0
    )
    with pytest.raises(PhysicalityError, match="reading its weights"):
        wrong.check_floor()


def test_a_decode_step_of_8b_on_an_h100_takes_milliseconds() -> None:
    """16 GB of weights at 3.35 TB/s are 4.5 ms; engines report 6 to 8 ms."""
    times = step_times(ModelShape.load(LLAMA), Catalog.load()["h100"], 1)
    assert times is not None
    assert 4.5e-3 < float(times.decode(1, 1000.0)) < 9e-3


def test_lines_of_decode_attention_are_near_their_measurements() -> None:
    times = step_times(ModelShape.load(LLAMA), Catalog.load()["h100"], 1)
    assert times is not None
    assert times.fit_error < 0.3


def test_head_counts_that_do_not_divide_give_no_replica() -> None:
    odd = dataclasses.replace(ModelShape.load(LLAMA), heads=30)
    assert step_times(odd, Catalog.load()["h100"], 4) is None


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"hidden_size": 64}, "lacks num_hidden_layers"),
        (
            {"num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2, "vocab_size": 9,
             "kv_lora_rank": 4, "intermediate_size": 8},
            "latent attention",
        ),
        (
            {"num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2, "vocab_size": 9},
            "lacks intermediate_size",
        ),
    ],
)  # fmt: skip
def test_configurations_that_are_none(config, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ModelShape.load(config)


def test_unknown_model_names_the_nearest(tmp_path) -> None:
    with pytest.raises(ValueError, match=r"nearest: .*Qwen3-32B"):
        ModelShape.load("Qwen/Qwen3-33B")
    (tmp_path / "config.json").write_text("no")
    with pytest.raises(ValueError, match="no JSON"):
        ModelShape.load(tmp_path)


@pytest.mark.skipif("ARMILLARY_DATA" not in os.environ, reason="ARMILLARY_DATA is not set")
def test_gemms_agree_with_another_projects_profile() -> None:
    """Vidur measured Llama-2-70B's MLP on an A100 with other software: same order, same shape."""
    import pandas as pd

    from armillary.corpora import external

    rows = pd.read_csv(external("vidur-a100"))
    rows = rows[(rows.num_tensor_parallel_workers == 4) & (rows.num_tokens.isin([512, 2048]))]
    table = OpTable.measured(Catalog.load()["a100"])
    for _, row in rows.drop_duplicates("num_tokens").iterrows():
        ours = table.gemm(np.array([float(row.num_tokens)]), 2 * 28672 // 4, 8192)[0]
        theirs = row["time_stats.mlp_up_proj.median"] * 1e-3
        assert 0.6 < ours / theirs < 1.6
