"""Projections against slow twins and their defining inequality."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize

from armillary.rl.maxmin_morl.dual_ascent import DualVariables
from armillary.rl.maxmin_morl.projection import (
    inverse_sqrt,
    nearest_in_polyhedron,
    project_dual,
    project_simplex,
)

numbers = st.floats(-50, 50, allow_nan=False)


@given(arrays(float, st.integers(1, 6), elements=numbers))
def test_projection_is_on_the_simplex_and_nothing_is_nearer(v):
    w = project_simplex(v)
    assert w.sum() == pytest.approx(1)
    assert (w >= 0).all()
    # (v - w)'(y - w) <= 0 for all y of the simplex: its vertices are enough.
    assert ((v - w) @ (np.eye(len(v)) - w).T <= 1e-7 * max(1, np.abs(v).max())).all()


def test_known_projections():
    np.testing.assert_allclose(project_simplex(np.array([0.5, 0.5, 0.5])), np.full(3, 1 / 3))
    np.testing.assert_allclose(project_simplex(np.array([2.0, 0.0])), [1, 0])
    np.testing.assert_allclose(project_simplex(np.array([0.9, 0.5])), [0.7, 0.3])
    np.testing.assert_allclose(
        project_dual(np.array([0.9, 0.5, -1.0, 7.0]), 2, u_max=5.0), [0.7, 0.3, 0, 5]
    )
    assert inverse_sqrt(0.4, 16) == pytest.approx(0.1)


def test_nearest_point_of_a_polyhedron():
    rng = np.random.default_rng(0)
    for _ in range(20):
        G, x = rng.normal(size=(5, 3)), 3 * rng.normal(size=3)
        h = G @ rng.normal(size=3) - rng.random(5)  # some point is inside
        found = nearest_in_polyhedron(x, G, h)
        assert (G @ found - h >= -1e-7).all()
        slow = minimize(
            lambda y, x=x: ((y - x) ** 2).sum(), np.zeros(3), method="SLSQP",
            constraints={"type": "ineq", "fun": lambda y, G=G, h=h: G @ y - h},
        )  # fmt: skip
        assert np.linalg.norm(found - x) <= np.sqrt(slow.fun) + 1e-5
    assert (
        nearest_in_polyhedron(np.zeros(1), np.array([[1.0], [-1.0]]), np.array([1.0, 1.0])) is None
    )


def test_dual_steps_raise_the_weight_of_the_worst_and_the_price_of_what_is_missed():
    dual = DualVariables(2, 2, eta_w=0.4, eta_u=0.5, u_init=1.0)
    dual.worth = np.array([2.0, 1.0])
    dual.step(np.array([1.0, 3.0]), np.array([-1.0, 4.0]), 2.0, np.array([2.0, 2.0]))
    # w: -0.4 * (-1, 1) / 2 = (+0.2, -0.2); prices: 1 + 0.25 and max(0, 1 - 1).
    np.testing.assert_allclose(dual.w, [0.7, 0.3])
    np.testing.assert_allclose(dual.prices, [1.25, 0.0])
    np.testing.assert_allclose(dual.u, [2.5, 0.0])


def test_damping_vanishes_where_a_limit_is_met_with_equality():
    dual = DualVariables(2, 1, 0.4, 0.5, damping=3.0)
    dual.step(np.ones(2), np.array([-0.2]), 1.0, np.array([1.0]))
    np.testing.assert_allclose(dual.u, [1.1 + 0.6])
    dual.step(np.ones(2), np.array([0.0]), 1.0, np.array([1.0]))
    np.testing.assert_allclose(dual.u, dual.prices)


def test_state_of_the_dual_survives_a_round_trip():
    dual = DualVariables(3, 1, 0.4, 0.5, damping=3.0)
    dual.step(np.arange(3.0), np.array([-0.2]), 1.0, np.array([1.0]))
    other = DualVariables(3, 1, 0.4, 0.5, damping=3.0)
    other.restore(dual.state())
    np.testing.assert_array_equal(other.weights(), dual.weights())
    for each in (dual, other):
        each.step(np.arange(3.0), np.array([0.1]), 1.0, np.array([1.0]))
    np.testing.assert_array_equal(other.weights(), dual.weights())
