"""Fleets and step times that the tests share."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("aiconfigurator_core")
pytest.importorskip("pyarrow")

from armillary.serving.hexgen import Catalog, ModelShape, Plan, Slo, Workload
from armillary.serving.hexgen.columns import Column
from armillary.serving.hexgen.steptimes import MAX_BATCH, MAX_LENGTH, MAX_STEP_TOKENS, StepTimes

TINY = ModelShape("tiny", 2, 64, 4, 2, 16, 128, 1000)


def flat_times(
    step: float = 0.01,
    slope: float = 0.0,
    a_token: float = 0.0,
    kv_tokens: int = 10**9,
    prompt: float = 0.0,
) -> StepTimes:
    """Step times that are easy to reason about: step + a_token·tokens + slope·context (s)."""
    tokens = np.arange(MAX_STEP_TOKENS + MAX_BATCH + 1, dtype=float)
    rows = np.zeros(MAX_BATCH + 1)
    gpu = Catalog.load()["h100"]
    length = np.arange(MAX_LENGTH + 1, dtype=float)
    return StepTimes(
        TINY, gpu, 1, attention=tokens * a_token / TINY.layers, ffn=tokens * 0.0, head=rows,
        base=rows, slope=rows + slope, prompt=length * prompt, kv_tokens=kv_tokens, overhead=step,
    )  # fmt: skip


def flat_column(times: StepTimes, kind: str = "agg", batch: int = 64, chunk: int = 512) -> Column:
    return Column(
        kind, f"{kind}-flat", (("h100", 1),), 4.02, 1.0, batch, chunk if kind != "dec" else 0,
        0.0, 0.0, 5e10, times,
    )  # fmt: skip


def flat_plan(*columns: tuple[Column, int], slo: Slo | None = None) -> Plan:
    return Plan(
        TINY, slo or Slo(10.0, 1000.0), Catalog.load(), tuple(c for c, _ in columns),
        tuple(n for _, n in columns), 1.0,
    )  # fmt: skip


@pytest.fixture(scope="session")
def flat() -> SimpleNamespace:
    """`times`, `column` and `plan` of replicas that are easy to reason about."""
    return SimpleNamespace(times=flat_times, column=flat_column, plan=flat_plan)


@pytest.fixture(scope="session")
def paper() -> Catalog:
    return Catalog.load(book="paper")


@pytest.fixture(scope="session")
def wildgpt() -> Workload:
    return Workload.synthetic_of("wildgpt", 2000, 20.0, 1000)
