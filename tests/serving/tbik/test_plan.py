"""The tree: its shape, its shards, its programs."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.serving.tbik.plan import TreePlan, even_shards, split


@st.composite
def plans(draw):
    leaves = draw(st.integers(1, 60))
    leaf = draw(st.sampled_from([1, 8, 64]))
    k = leaves * leaf - draw(st.integers(0, leaf - 1))
    cuts = sorted(draw(st.sets(st.integers(1, leaves - 1), max_size=8))) if leaves > 1 else []
    edges = [0, *(c * leaf for c in cuts), k]
    wire = draw(st.sampled_from(["float32", "bfloat16"]))
    return TreePlan(k, leaf, list(itertools.pairwise(edges)), tp_max=16, wire=wire)


@given(plans())
def test_parts_tile_the_leaves_and_lie_in_their_ranks(plan):
    covered = []
    for rank in range(plan.world):
        a, b = plan.leaf_range(rank)
        nodes = plan.nodes(rank)
        assert all(a <= lo < hi <= b for lo, hi in nodes)
        covered += [leaf for node in nodes for leaf in range(*node)]
        assert len(nodes) <= max(1, 2 * math.ceil(math.log2(plan.leaves)) - 2)
    assert covered == list(range(plan.leaves))


@given(plans())
def test_programs_add_what_the_tree_adds(plan):
    """Run the stack machine on names instead of numbers: subtrees, then their combination."""

    def tree(lo, hi):
        if hi - lo == 1:
            return lo
        middle = split(lo, hi)
        return (tree(lo, middle), tree(middle, hi))

    def run(values, merges):
        stack = []
        for value, count in zip(values, merges, strict=True):
            for _ in range(count):
                value = (stack.pop(), value)
            stack.append(value)
        assert len(stack) == 1
        return stack[0]

    parts = []
    for _, node in plan.parts:
        value = run(list(range(*node)), plan.subtree(node).merges)
        assert value == tree(*node)
        parts.append(value)
    assert run(parts, plan.combination().merges) == tree(0, plan.leaves)


@given(plans())
def test_rounding_does_not_depend_on_shards(plan):
    alone = TreePlan(plan.k, plan.leaf, tp_max=16, wire=plan.wire)
    nodes = {node for _, node in plan.parts}
    assert {n for n in nodes if plan.rounded(n)} == {n for n in nodes if alone.rounded(n)}
    assert plan.rounded((0, plan.leaves)) == (plan.wire == "bfloat16")
    assert len(alone.subtree((0, plan.leaves)).rounded) == 2 * plan.leaves - 1


@given(plans())
def test_json_keeps_the_plan(plan):
    again = TreePlan.from_json(plan.to_json())
    assert again == plan
    assert again.digest() == plan.digest()


def test_the_shape_of_24_leaves_on_3_ranks():
    plan = TreePlan(24 * 64, 64, even_shards(24 * 64, 64, 3))
    assert plan.nodes(0) == ((0, 6), (6, 8))
    assert plan.nodes(1) == ((8, 9), (9, 12), (12, 15), (15, 16))
    for world in (2, 4, 8):  # 24 = 3 * 2^3: every power of two to 8 owns one subtree a rank
        aligned = TreePlan(24 * 64, 64, even_shards(24 * 64, 64, world))
        assert aligned.most_parts == 1


def test_digests_tell_leaf_shards_and_wire_apart():
    plans = [
        TreePlan(512, 64), TreePlan(512, 32), TreePlan(512, 64, [(0, 256), (256, 512)]),
        TreePlan(512, 64, wire="bfloat16"), TreePlan(512, 64, wire="bfloat16", tp_max=4),
    ]  # fmt: skip
    assert len({plan.digest() for plan in plans}) == len(plans)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: TreePlan(128, 64, [(0, 60), (60, 128)]),
            r"boundaries .* nearest legal split is 64",
        ),
        (
            lambda: TreePlan(128, 64, [(0, 64), (64, 64), (64, 128)], name="o_proj"),
            "o_proj.*2 leaves",
        ),
        (
            lambda: even_shards(128, 64, 3, name="mlp.down_proj"),
            "mlp.down_proj has 2 leaves.*size 3",
        ),
        (lambda: TreePlan(128, 64, [(0, 64)]), "must follow one another from 0 to k=128"),
        (lambda: TreePlan(0, 64), "at least 1"),
        (lambda: TreePlan(64, 64, wire="float16"), "one of float32, bfloat16"),
        (lambda: TreePlan(256, 64, even_shards(256, 64, 4), wire="bfloat16", tp_max=2), "tp_max=2"),
        (lambda: split(3, 4), "1 leaves"),
    ],
)
def test_bad_plans_are_told(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_heads_and_leaves_both_bound_shards():
    # 9 heads of 48 features on leaves of 64: cuts lie at multiples of 192 = lcm(48, 64).
    assert even_shards(432, 64, 3, unit=48) == [(0, 192), (192, 384), (384, 432)]
    with pytest.raises(ValueError, match="3 pieces of 192"):
        even_shards(432, 64, 4, unit=48)
