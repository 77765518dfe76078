"""The simulated engine against figures that can be worked out."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from armillary.serving.climb.engine_model import EngineModel, cliff_loss
from armillary.serving.climb.policies import (
    POLICIES,
    AffinityLongestQueue,
    Climb,
    Fcfs,
    PriorityOnly,
)
from armillary.serving.climb.simulation import simulate
from armillary.serving.climb.traces import COLUMNS, multi_lora_trace


def trace(*rows):
    return pd.DataFrame(list(rows), columns=pd.Index(COLUMNS))


def test_one_request_takes_a_load_and_its_steps():
    model = EngineModel(base=0.1, per_request=0.01, per_prompt_token=0.001, load=0.5)
    for policy in (Fcfs(), Climb()):
        found = simulate(trace((1.0, "a", "background", 20, 3)), model, policy, 1).requests.iloc[0]
        # a load, a step that reads the prompt, two more
        assert found["first"] == pytest.approx(1.0 + 0.5 + 0.13)
        assert found["done"] == pytest.approx(1.0 + 0.5 + 0.13 + 2 * 0.11)


def test_an_engine_passes_over_adapters_that_find_no_slot():
    model = EngineModel(base=0.1, per_request=0.0, load=0.0)
    rows = [(0.0, "a", "background", 0, 10), (0.0, "b", "background", 0, 1),
            (0.0, "a", "background", 0, 1)]  # fmt: skip
    done = simulate(trace(*rows), model, Fcfs(), 1).requests.sort_values("arrived")
    by = done.groupby("adapter")["done"].max()
    assert by["b"] == pytest.approx(1.1)  # after a's ten steps
    assert done[done.adapter == "a"]["done"].min() == pytest.approx(0.1)  # joined a's batch


@pytest.mark.parametrize("policy", [Fcfs, PriorityOnly, AffinityLongestQueue])
def test_skipping_steps_is_the_same_as_taking_them(policy):
    """A slow twin: the engine looks up after each step. (For policies that heed no clock.)"""
    from armillary.serving.climb import simulation

    drawn = multi_lora_trace(40, 8, 5, seed=1000)
    model = EngineModel(load=0.2)
    quick = simulate(drawn, model, policy(), 3).requests
    advance = simulation.Engine.advance
    try:
        simulation.Engine.advance = lambda self, now, until: advance(self, now, now)
        slow = simulate(drawn, model, policy(), 3).requests
    finally:
        simulation.Engine.advance = advance
    pd.testing.assert_frame_equal(
        quick.sort_values("arrived").reset_index(drop=True),
        slow.sort_values("arrived").reset_index(drop=True),
        check_exact=False,
        rtol=1e-9,
    )


@pytest.mark.parametrize("name", POLICIES)
def test_every_request_is_answered_and_the_engine_is_asked_for_no_miss(name):
    drawn = multi_lora_trace(60, 8, 6, seed=1001)
    policy = POLICIES[name]()
    found = simulate(drawn, EngineModel(load=0.1), policy, 3)
    assert found.unfinished == found.rejected == 0
    assert len(found.requests) == len(drawn)
    assert (found.misses == 0) == (not policy.engine_loads)
    rows = found.requests
    assert (rows["sent"] >= rows["arrived"]).all()
    assert (rows["first"] > rows["sent"]).all()
    assert (rows["done"] >= rows["first"]).all()


def test_an_engine_without_loads_is_a_queue_that_serves_at_a_fixed_pace():
    """One at a time, one token: M/D/1, whose mean wait is rho/(2(1-rho)) services."""
    model = EngineModel(base=0.1, per_request=0.0, load=0.0, max_batch=1)
    waits = []
    for seed in range(1000, 1006):
        drawn = multi_lora_trace(4000, 5, 1, vip_adapters=0, output_tokens=1, seed=seed)
        rows = simulate(drawn, model, Fcfs(), 1).requests
        waits.append((rows["first"] - rows["arrived"]).mean() - 0.1)
    # steps are slotted only while busy, so that the queue is M/D/1 exactly
    expected = 0.1 * 0.5 / (2 * 0.5)
    spread = np.std(waits, ddof=1) / np.sqrt(len(waits))
    assert abs(np.mean(waits) - expected) < 3 * spread + 1e-4


def test_the_cliff_and_what_climb_makes_of_it():
    model = EngineModel(load=0.35)
    tail = {}
    for working_set in (8, 12):
        drawn = multi_lora_trace(200, 10.66, working_set, seed=1002)
        for name, policy in (("fcfs", Fcfs()), ("priority", PriorityOnly()), ("climb", Climb())):
            rows = simulate(drawn, model, policy, 8).requests
            vip = rows.query("`class` == 'vip' and arrived > 30")
            tail[name, working_set] = np.quantile(vip["first"] - vip["arrived"], 0.99)
    assert tail["fcfs", 12] > 10 * tail["fcfs", 8]
    assert tail["climb", 12] < tail["fcfs", 12] / 3
    assert tail["climb", 12] < 0.35 + 0.1  # a load, and the step that was running


def test_share_of_time_that_loads_eat():
    assert cliff_loss(10.0, 16, 8, 0.1) == pytest.approx(0.5)
    assert cliff_loss(10.0, 6, 8, 0.1) == 0.0
    assert cliff_loss(10.0, 16, 8, 0.1, merged=2) == pytest.approx(0.25)


def test_engine_models_are_checked_and_read_back(tmp_path):
    model = EngineModel(load=0.7)
    (tmp_path / "m.json").write_text(model.to_json())
    assert EngineModel.from_file(tmp_path / "m.json") == model
    (tmp_path / "bad.json").write_text('{"speed": 1}')
    with pytest.raises(ValueError, match="unknown speed"):
        EngineModel.from_file(tmp_path / "bad.json")
    with pytest.raises(ValueError, match="load=-1"):
        EngineModel(load=-1)
    with pytest.raises(ValueError, match="takes no time"):
        EngineModel(base=0, per_request=0)


def test_a_policy_that_serves_nobody_ends_too():
    class Idle(Climb):
        def decide(self, controller, now):
            pass

    found = simulate(trace((0.0, "a", "background", 0, 1)), EngineModel(), Idle(), 1)
    assert found.unfinished == 1
