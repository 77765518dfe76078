"""Exact solutions: closed forms, agreement of the three methods, proofs, invariants."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from armillary.rl.maxmin_morl import garnet, solve_tabular
from armillary.rl.maxmin_morl.bundle import solve_bundle
from armillary.rl.maxmin_morl.gradient import solve_pgd
from armillary.rl.maxmin_morl.linear_program import solve_program
from armillary.rl.maxmin_morl.mdp import vector_mdp
from armillary.rl.maxmin_morl.oracle import Oracle, bias_bound
from armillary.rl.maxmin_morl.tabular import check, policy_of, solve_mdp

from .conftest import two_contexts


@pytest.mark.parametrize("method", ["lp", "bundle"])
def test_two_arms_mix_to_the_harmonic_mean(method):
    # Arm i gives a_i to objective i alone: p_i a_i is equal for all, so that t = 1 / sum 1/a_i.
    a = np.array([1.0, 3.0, 2.0])
    P, r, c, mu = two_contexts(np.diag(a), np.zeros((3, 1)))
    found = solve_tabular(P, r, c, [-1.0], mu, gamma=0.5, method=method)
    t = 1 / (1 / a).sum()
    assert found.value_min == pytest.approx(t / 0.5)
    # Contexts are alike: only the mean of their rows is determined, and a vertex may split it.
    np.testing.assert_allclose(found.policy.mean(axis=0), t / a, atol=1e-6)
    # Weights make all arms equally good: w_i a_i is constant.
    np.testing.assert_allclose(found.w, t / a, atol=1e-6)
    assert found.u[0] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("method", ["lp", "bundle"])
def test_a_limit_that_binds_has_the_price_of_its_trade(method):
    # Both good arms cost 1, a free arm gives 0.2 to both. With share q of cost allowed, each good
    # arm gets q / 2: t = q a / 2 + (1 - q) 0.2, so that dt/dq = a / 2 - 0.2 is the price.
    arms = np.array([[1.0, 0.0], [0.0, 1.0], [0.2, 0.2]])
    costs = -np.array([[1.0], [1.0], [0.0]])
    P, r, c, mu = two_contexts(arms, costs)
    q = 0.4
    found = solve_tabular(P, r, c, [-q / 0.5], mu, gamma=0.5, method=method)
    assert found.value_min == pytest.approx((q / 2 + (1 - q) * 0.2) / 0.5)
    assert found.u[0] == pytest.approx(0.5 - 0.2, abs=1e-6)
    assert found.slack[0] == pytest.approx(0, abs=1e-9)
    np.testing.assert_allclose(found.w, [0.5, 0.5], atol=1e-6)


def test_three_unequal_objectives_with_two_limits():
    # One arm a objective and a free arm; two limits of which only the second binds.
    arms = np.vstack([np.diag([2.0, 1.0, 0.5]), np.zeros(3)])
    costs = -np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 2.0], [0.0, 0.0]])
    P, r, c, mu = two_contexts(arms, costs)
    # t = 2 p1 = p2 = p3 / 2; the second limit: p2 + 2 p3 = t + 4 t <= 0.5.
    found = solve_tabular(P, r, c, [-1.0 / 0.5, -0.5 / 0.5], mu, gamma=0.5)
    t = 0.1
    assert found.value_min == pytest.approx(t / 0.5)
    assert found.u[0] == pytest.approx(0, abs=1e-8)
    assert found.u[1] == pytest.approx(0.2, abs=1e-6)
    # The first arm's limit does not bind: its objective may be above the worst, the others not.
    np.testing.assert_allclose(found.J[1:], np.full(2, t / 0.5), atol=1e-6)
    assert found.J[0] >= t / 0.5 - 1e-6


@settings(deadline=None, max_examples=6)
@given(st.integers(0, 10_000), st.integers(2, 4), st.integers(1, 2))
def test_bundle_is_the_linear_programme_and_proves_it(seed, objectives, limits):
    mdp = garnet(12, 3, 3, objectives, limits, gamma=0.8, seed=seed)
    exact, found = solve_mdp(mdp, "lp"), solve_mdp(mdp, "bundle")
    assert found.value_min == pytest.approx(exact.value_min, rel=1e-5)
    assert (found.slack >= -1e-7).all()
    assert -1e-7 <= found.gap <= 1e-4
    assert found.w.sum() == pytest.approx(1)
    assert (found.u >= 0).all()
    # Any multipliers give an upper bound: weak duality.
    rng = np.random.default_rng(seed)
    w, u = rng.dirichlet(np.ones(objectives)), rng.exponential(size=limits)
    assert check(mdp, found.policy, w, u).upper >= exact.value_min - 1e-7


def test_duplicated_objectives_leave_the_worst_return_alone():
    mdp = garnet(15, 3, 3, 2, 1, gamma=0.8, seed=3)
    import dataclasses

    twice = dataclasses.replace(mdp, r=np.repeat(mdp.r, 2, axis=1))
    assert solve_mdp(twice, "bundle").value_min == pytest.approx(
        solve_mdp(mdp, "bundle").value_min, rel=1e-6
    )


def test_adding_a_constant_to_all_rewards_adds_its_return():
    mdp = garnet(15, 3, 3, 3, 1, gamma=0.8, seed=4)
    import dataclasses

    raised = dataclasses.replace(mdp, r=mdp.r + 0.7)
    assert solve_mdp(raised, "bundle").value_min == pytest.approx(
        solve_mdp(mdp, "bundle").value_min + 0.7 / 0.2, rel=1e-6
    )


def test_a_deterministic_best_response_is_not_the_solution():
    P, r, c, mu = two_contexts(np.diag([1.0, 3.0, 2.0]), np.zeros((3, 1)))
    mdp = vector_mdp(P, r, c, [-1.0], mu, 0.5)
    found = solve_mdp(mdp, "bundle")
    response = Oracle(mdp)(np.concatenate([found.w, found.u]))
    assert response.J[:3].min() == pytest.approx(0)
    assert found.value_min > 1


def test_projected_gradient_is_within_its_bias_and_its_value_above():
    mdp = garnet(12, 3, 3, 3, 1, gamma=0.8, seed=5)
    exact = solve_program(mdp).value
    alpha = 0.05
    found = solve_pgd(mdp, alpha, 300)
    worst = mdp.returns(found.response.policy)[:3].min()
    assert -1e-4 <= exact - worst <= bias_bound(mdp, alpha)
    assert exact - 1e-9 <= found.response.value <= exact + bias_bound(mdp, alpha)
    # No further step goes down.
    assert found.history[-1] == pytest.approx(min(found.history), abs=1e-8)


def test_softened_best_response_has_the_gradient_of_its_value():
    mdp = garnet(10, 3, 3, 2, 1, gamma=0.8, seed=6)
    oracle = Oracle(mdp, 0.1)
    x = np.array([0.6, 0.4, 0.3])
    slope = oracle(x).cut(mdp)
    for i in range(3):
        step = 1e-5 * np.eye(3)[i]
        numeric = (oracle(x + step).value - oracle(x - step).value) / 2e-5
        assert slope[i] == pytest.approx(numeric, abs=1e-5)


def test_hard_best_response_is_value_iteration():
    mdp = garnet(30, 4, 4, 2, 1, gamma=0.9, seed=7)
    x = np.array([0.3, 0.7, 0.5])
    values, reward = np.zeros(30), mdp.signals @ x
    for _ in range(400):
        values = (reward + 0.9 * (mdp.P @ values)).reshape(30, 4).max(axis=1)
    assert Oracle(mdp)(x).value == pytest.approx(mdp.mu @ values - x[2] * mdp.C[0], abs=1e-8)


def test_sparse_and_dense_ways_agree():
    mdp = garnet(320, 3, 4, 2, 1, gamma=0.95, seed=8)  # above the dense limit, wide
    policy = np.random.default_rng(0).dirichlet(np.ones(3), 320)
    dense = np.linalg.solve(np.eye(320) - 0.95 * mdp.under(policy).toarray().T, mdp.mu)
    np.testing.assert_allclose(mdp.occupancy(policy).sum(axis=1), dense, atol=1e-9)
    chain = sparse.diags_array([np.ones(399)], offsets=[1], shape=(400, 400)).tolil()
    chain[399, 399] = 1
    stay = sparse.eye_array(400)
    r = np.zeros((400, 2, 2))
    r[:, 0, 0] = r[:, 1, 1] = 1
    found = solve_tabular([sparse.csr_array(chain), stay.tocsr()], r, gamma=0.9)
    assert found.value_min == pytest.approx(5.0, rel=1e-5)  # both arms half of the time, 10 in all


def test_lists_of_sparse_matrices_are_read_as_arrays_are():
    rng = np.random.default_rng(9)
    P = rng.dirichlet(np.ones(6), (6, 2))
    r, c = rng.random((6, 2, 3)), rng.random((6, 2, 1))
    parts = [sparse.csr_array(P[:, a]) for a in range(2)]
    one = solve_tabular(P, r, c, [2.0], None, gamma=0.8)
    two = solve_tabular(parts, r, c, [2.0], None, gamma=0.8)
    assert one.value_min == pytest.approx(two.value_min, rel=1e-9)


def test_unvisited_states_are_marked_and_uniform():
    occupancy = np.array([[0.0, 2.0], [0.0, 0.0]])
    policy, visited = policy_of(occupancy)
    np.testing.assert_array_equal(visited, [True, False])
    np.testing.assert_allclose(policy, [[0, 1], [0.5, 0.5]])


def test_bounds_of_the_bundle_close_and_never_cross():
    history = solve_bundle(garnet(20, 4, 4, 3, 2, gamma=0.9, seed=10)).history
    assert all(step.lower <= step.upper + 1e-9 for step in history)
    uppers = [step.upper for step in history]
    assert uppers == sorted(uppers, reverse=True)
    assert history[-1].calls <= 40
