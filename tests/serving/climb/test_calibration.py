"""Calibration against an emulated engine, whose figures are known."""

from __future__ import annotations

import asyncio
import json

import pandas as pd
import pytest

from armillary.cli.root import run
from armillary.serving.climb.calibration import calibrate
from armillary.serving.climb.emulator import create_engine
from armillary.serving.climb.engine_model import EngineModel

NAMES = ["a", "b", "c"]


def test_an_engine_s_figures_are_found_again(served):
    truth = EngineModel(base=0.03, per_request=0.002, load=0.2)
    with served(create_engine(truth, 2, NAMES)) as address:
        found = calibrate(address, NAMES, base_model="base", slots=2, batches=(1, 4, 8))
    assert found.model.base == pytest.approx(truth.base, rel=0.35)
    assert found.model.load == pytest.approx(truth.load, rel=0.35)
    assert found.model.step(8, 0) == pytest.approx(truth.step(8, 0), rel=0.25)
    assert found.step_error < 0.25
    written = json.loads(found.to_json())
    assert written["fit"]["probes"]
    with pytest.raises(ValueError, match="at least two"):
        calibrate(address, ["a"], base_model="base", slots=2)


def test_replay_writes_what_came_of_each_request(served, tmp_path, capsys):
    (tmp_path / "t.csv").write_text(
        "t_s,adapter,class,prompt_tokens,output_tokens\n"
        "0,a,vip,4,3\n0.1,b,background,4,5\n0.2,gone,background,4,5\n0.3,,background,4,2\n"
    )
    with served(create_engine(EngineModel(base=0.01, load=0.05), 2, NAMES)) as address:
        arguments = [str(tmp_path / "t.csv"), "--target", address, "-o", str(tmp_path / "r.csv")]
        assert run(["climb", "replay", *arguments]) == 3  # one adapter is unknown
    table = pd.read_csv(tmp_path / "r.csv")
    assert table["status"].tolist() == [200, 200, 404, 200]
    assert table["tokens"].tolist() == [3, 5, 0, 2]
    assert (table["ttft"].dropna() > 0).all()
    assert "1 of 4 requests were not answered" in capsys.readouterr().err


def test_calibration_runs_where_an_event_loop_runs(served):
    """As in a notebook."""

    async def cell(address: str):
        return calibrate(address, NAMES, base_model="base", slots=2, batches=(1, 2))

    with served(create_engine(EngineModel(base=0.01, load=0.02), 2, NAMES)) as address:
        assert asyncio.run(cell(address)).model.base > 0
