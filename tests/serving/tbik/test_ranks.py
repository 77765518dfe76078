"""Real processes on gloo: equal bits at any number of ranks, disagreements, failures."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from armillary.serving.tbik import PlanMismatchError, audit, run_ranks
from armillary.serving.tbik.audit import run_settings
from armillary.serving.tbik.generation import Setting
from armillary.serving.tbik.plan import TreePlan, even_shards
from armillary.serving.tbik.ranks import RankError

K = 64 * 24


def summed(group, lengths, wire):
    """Each rank's part of x w^T over a plan, for several numbers of rows."""
    from armillary.serving.tbik import ops, tree_all_reduce

    plan = TreePlan(K, 64, even_shards(K, 64, group.world), tp_max=9, wire=wire)
    a, b = plan.shards[group.rank]
    found = []
    for rows in lengths:
        x, w = product(rows)
        parts = ops.tree_parts(x[:, a:b], ops.pack(w[:, a:b]), plan, group.rank)
        found.append(tree_all_reduce(parts, plan, group).numpy())
        columns = torch.arange(5.0 * (group.rank + 1)).repeat(rows, 1)
        gathered = group.gather(columns, [5 * (r + 1) for r in range(group.world)])
        assert gathered.shape == (rows, 5 * group.world * (group.world + 1) // 2)
    return found


def product(rows):
    generator = torch.Generator().manual_seed(rows)
    return (
        torch.randn(rows, K, generator=generator),
        torch.randn(96, K, generator=generator),
    )


@pytest.mark.parametrize("transport", ["shm", "gloo"])
def test_sums_of_ranks_are_those_of_one(transport):
    from armillary.serving.tbik import ops

    lengths = (1, 3, 700)  # the last takes the path of long messages
    for wire in ("float32", "bfloat16"):
        alone = TreePlan(K, 64, tp_max=9, wire=wire)
        for found in run_ranks(3, summed, lengths, wire, transport=transport):
            for rows, y in zip(lengths, found, strict=True):
                x, w = product(rows)
                [(_, whole)] = ops.tree_parts(x, ops.pack(w), alone, 0)
                np.testing.assert_array_equal(y.view(np.int32), whole.numpy().view(np.int32))


def test_a_model_answers_the_same_on_any_number_of_ranks(folder, prompts):
    settings = [
        Setting(1, 1), Setting(2, 4, 16, 3, True), Setting(3, 2, transport="gloo"), Setting(4, 4),
    ]  # fmt: skip
    found = run_settings(folder, prompts, 4, settings, layers=True)
    for setting, answers in zip(settings, found, strict=True):
        assert [a.sha256 for a in answers] == [a.sha256 for a in found[0]], setting
        assert [a.layers for a in answers] == [a.layers for a in found[0]]


@pytest.mark.slow
def test_eight_and_nine_ranks_share_nine_heads(folder, prompts):
    settings = [Setting(1, 1), Setting(8, 4), Setting(9, 2, 16)]
    found = run_settings(folder, prompts, 3, settings)
    for answers in found[1:]:
        assert [a.sha256 for a in answers] == [a.sha256 for a in found[0]]


@pytest.mark.slow
def test_a_rounded_wire_answers_the_same_up_to_tp_max(folder, prompts):
    settings = [Setting(1, 1), Setting(2, 4), Setting(3, 4)]
    found = run_settings(folder, prompts[:2], 3, settings, backend="tbik:bfloat16")
    for answers in found[1:]:
        assert [a.sha256 for a in answers] == [a.sha256 for a in found[0]]


def test_an_audit_names_the_first_layer_of_plain_torch_that_differs(folder, prompts):
    report = audit(folder, prompts, tp=(1, 2), batch=(1,), backend="torch", new_tokens=2)
    assert not report.invariant
    assert report.first_layer == "model.layers.0.self_attn.o_proj"
    ours = audit(folder, prompts, tp=(1, 2), batch=(1,), new_tokens=2)
    assert ours.invariant
    assert ours.first_layer == ""
    assert ours.distinct == (1, 1, 1, 1)


def other_leaf(group, folder):
    from armillary.serving.tbik import make_invariant
    from armillary.serving.tbik.generation import load

    make_invariant(load(folder, torch.bfloat16), group=group, leaf=64 if group.rank else 32)


def test_ranks_that_disagree_all_say_so(folder):
    with pytest.raises(PlanMismatchError, match=r"ranks \[1\] differ from rank 0 in leaf"):
        run_ranks(2, other_leaf, folder, transport="gloo", seconds=60)


def test_more_ranks_than_leaves_names_the_layer():
    from armillary.serving.tbik.sharding import layout
    from armillary.serving.tbik.tasks import small_config

    with pytest.raises(ValueError, match=r"self_attn.o_proj has 9 leaves of 64.*world size 10"):
        layout(small_config(1), 0, 10, 64, 8, "float32")


def dies(group):
    import os

    if group.rank == 1:
        os._exit(3)


def test_a_rank_that_dies_is_an_error():
    with pytest.raises(RankError, match=r"rank 1 died \(exit code 3\)"):
        run_ranks(2, dies, transport="gloo", seconds=60)
    with pytest.raises(ValueError, match="transport"):
        run_ranks(2, dies, transport="pigeon")


@pytest.mark.parametrize(
    ("change", "message"),
    [({"prompts": []}, "at least one"), ({"tp": (0,)}, "numbers from 1")],
)
def test_audits_of_nothing_are_refused(folder, change, message):
    given = {"prompts": [[1]], "tp": (1,)} | change
    with pytest.raises(ValueError, match=message):
        audit(folder, given.pop("prompts"), **given)
