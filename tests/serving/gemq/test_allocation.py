"""Plans: HiGHS equals brute force, multipliers prove their bounds, rules and budgets are kept."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.serving.gemq import BitPlan, allocate, allocation, rtn, uniform_plan
from armillary.serving.gemq.allocation import AllocationWarning, fixed_plan, permuted
from armillary.serving.gemq.importance import Importance

pytestmark = pytest.mark.filterwarnings(
    "ignore::armillary.serving.gemq.allocation.AllocationWarning"
)


def made(damage, bits=(1, 2, 3), group=64, hidden=128, inner=64, uncalibrated=None) -> Importance:
    damage = np.asarray(damage, float)
    layers, experts, _ = damage.shape
    size = np.array([rtn.expert_bytes(hidden, inner, b, group) for b in bits])
    absent = np.zeros((layers, experts), bool) if uncalibrated is None else uncalibrated
    return Importance(
        damage, damage, damage, damage, np.ones((layers, experts), np.int64),
        np.ones((layers, experts)), 1, absent, np.broadcast_to(size, damage.shape).copy(),
        np.full((layers, experts), 3 * hidden * inner), tuple(bits), group,
        tuple(f"model.layers.{i}.mlp" for i in range(layers)),
    )  # fmt: skip


def drawn(seed: int, layers: int, experts: int, widths: int):
    """Damages that fall with the width, over four decades."""
    rng = np.random.default_rng(seed)
    base = 10.0 ** rng.uniform(-4, 0, size=(layers, experts, 1))
    falls = np.cumprod(rng.uniform(0.05, 0.9, size=(layers, experts, widths)), axis=2)
    return base * falls


def brute(importance: Importance, budget: float, diversity: bool, cap: float = np.inf) -> float:
    """Every plan there is."""
    c, size, widths = importance.fisher, importance.sizes, np.array(importance.bits)
    layers, experts, count = c.shape
    n = layers * experts
    plans = np.array(list(itertools.product(range(count), repeat=n)))  # (plans, L E)
    each = np.arange(n)
    fits = size.reshape(n, count)[each, plans].sum(axis=1) <= budget + 1e-9
    by_layer = plans.reshape(-1, layers, experts)
    fits &= (widths[by_layer].sum(axis=2) <= cap).all(axis=1)
    fits &= ~(importance.uncalibrated.ravel() & (plans == count - 1)).any(axis=1)
    if diversity:
        for width in (count - 1, count - 2):
            fits &= (by_layer == width).any(axis=2).all(axis=1)
    return float(c.reshape(n, count)[each, plans].sum(axis=1)[fits].min())


@pytest.mark.parametrize("solver", ["highs", "lagrange"])
@pytest.mark.parametrize(
    ("layers", "experts", "average", "diversity", "trust"),
    [(2, 4, 2.0, False, None), (2, 4, 2.0, True, None), (2, 3, 2.2, False, 0.25),
     (3, 3, 2.0, True, 0.5), (1, 8, 1.7, True, None), (4, 2, 2.5, True, None)],
)  # fmt: skip
def test_no_plan_is_better(layers, experts, average, diversity, trust, solver):
    for seed in range(3):
        importance = made(drawn(seed, layers, experts, 3))
        plan = allocate(
            importance, avg_bits=average, diversity=diversity, trust=trust, solver=solver
        )
        diverse = diversity and not plan.notes
        cap = np.inf if trust is None else np.floor(experts * (average + trust) + 1e-9)
        best = brute(importance, plan.budget, diverse, cap)
        assert plan.bytes <= plan.budget
        assert plan.bound <= best * (1 + 1e-9)
        if solver == "highs":
            assert plan.objective == pytest.approx(best, rel=1e-9)
        else:
            assert best <= plan.objective * (1 + 1e-12)
            assert (plan.objective - best) / plan.objective <= plan.gap + 1e-12


@given(seed=st.integers(0, 10_000), experts=st.integers(2, 6), average=st.floats(1.0, 3.0))
@settings(max_examples=12, deadline=None)
def test_budgets_and_rules_are_always_kept(seed, experts, average):
    importance = made(drawn(seed, 3, experts, 3))
    for scope in ("global", "layer"):
        plan = allocate(importance, avg_bits=average, scope=scope)
        assert plan.bytes <= plan.budget * (1 + 1e-9)
        assert plan.objective >= plan.bound * (1 - 1e-9)
        if not plan.notes:
            assert all({2, 3} <= set(row) for row in plan.bits.tolist())
        if scope == "layer":
            assert (plan.layer_means <= average + 1e-9).all() or plan.bits.min() < 2


def test_a_global_plan_is_no_worse_than_a_layer_wise_one_and_moves_bits_between_layers():
    damage = drawn(5, 4, 6, 3)
    damage[0] *= 100
    importance = made(damage)
    everywhere = allocate(importance, avg_bits=2.0, diversity=False)
    layerwise = allocate(importance, avg_bits=2.0, diversity=False, scope="layer")
    assert everywhere.objective < layerwise.objective
    assert everywhere.layer_means[0] > 2.4
    capped = allocate(importance, avg_bits=2.0, diversity=False, trust=0.0)
    assert (capped.layer_means <= 2.0).all()
    assert everywhere.objective <= capped.objective


def test_the_multiplier_bound_is_tight_at_scale():
    importance = made(drawn(7, 26, 64, 3))
    plan = allocate(importance, avg_bits=2.0, solver="lagrange")
    assert 0 <= plan.gap < 1e-4


def test_nominal_bits_ignore_scales_and_zeros():
    """At 2 bits of {1, 3} true bytes count one bit's missing zero; nominal ones do not."""
    importance = made(drawn(8, 2, 8, 2), bits=(1, 3))
    nominal = allocate(importance, avg_bits=2.0, budget="nominal", diversity=False)
    assert nominal.mean_bits <= 2.0
    weights = 3 * 128 * 64
    assert nominal.budget == 16 * weights * 2 / 8
    assert nominal.counted == "nominal"


def test_experts_without_tokens_never_get_the_largest_width():
    damage = drawn(9, 2, 4, 3)
    damage[0, 0] *= 1e6
    absent = np.zeros((2, 4), bool)
    absent[0, 0] = True
    importance = made(damage, uncalibrated=absent)
    plan = allocate(importance, avg_bits=2.5)
    assert plan.bits[0, 0] == 2
    assert plan.objective == pytest.approx(brute(importance, plan.budget, True), rel=1e-9)


def test_a_planted_optimum_is_found():
    """Damages are proportional to a known sensitivity: the most sensitive third gets most bits."""
    for seed in range(20):
        damage, wanted = allocation.planted(seed, layers=3, experts=6)
        plan = allocate(made(damage), avg_bits=2.0, budget="nominal", diversity=False)
        np.testing.assert_array_equal(plan.bits, wanted)


def test_peers_plans_have_the_same_bytes():
    importance = made(drawn(10, 3, 8, 3))
    half = uniform_plan(importance, 2.5, seed=1)
    assert (half.layer_means == 2.5).all()
    assert half.bytes == allocate(importance, avg_bits=2.5).budget
    plan = allocate(importance, avg_bits=2.5)
    shuffled = permuted(plan, importance, 3)
    assert shuffled.bytes == plan.bytes
    assert (shuffled.bits != plan.bits).any()


def test_a_plan_survives_its_file(tmp_path):
    plan = allocate(made(drawn(11, 2, 4, 3)), avg_bits=2.0, trust=0.5)
    again = BitPlan.load(plan.save(tmp_path / "plan.json"))
    assert again.to_dict() == plan.to_dict()
    np.testing.assert_array_equal(again.bits, plan.bits)
    (tmp_path / "other.json").write_text('{"bits": 3}')
    with pytest.raises(ValueError, match="is no plan of `armillary gemq allocate`"):
        BitPlan.load(tmp_path / "other.json")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"avg_bits": 0.5}, r"avg_bits=0.5 is outside what widths allow: 1 to 3 bits .*bytes"),
        ({"avg_bits": 3.5}, "outside what widths allow"),
        ({"budget_bytes": 10.0}, "budget_bytes=10 is outside"),
        ({}, "give one of avg_bits and budget_bytes"),
        ({"avg_bits": 2.0, "budget_bytes": 1e6}, "give one of"),
        ({"avg_bits": 2.0, "scope": "model"}, "scope='model'"),
        ({"avg_bits": 2.0, "weighting": "size"}, "weighting='size': it must be one of"),
        ({"avg_bits": 2.0, "budget": "free"}, "budget='free'"),
        ({"avg_bits": 2.0, "coefficients": np.full((2, 4, 3), np.nan)}, "finite ones"),
    ],
)
def test_bad_budgets_are_told(asked, message):
    with pytest.raises(ValueError, match=message):
        allocate(made(drawn(12, 2, 4, 3)), **asked)


def test_a_rule_that_cannot_hold_is_dropped_aloud():
    importance = made(drawn(13, 2, 4, 3))
    with pytest.warns(
        AllocationWarning, match="4 experts at 1.5 bits leave 2 bits above the least"
    ):
        plan = allocate(importance, avg_bits=1.5)
    assert plan.notes
    with pytest.warns(AllocationWarning, match="needs two experts"):
        allocate(made(drawn(14, 2, 1, 3)), avg_bits=2.0)
    with pytest.raises(ValueError, match="bits must be among"):
        fixed_plan(importance, 4)
