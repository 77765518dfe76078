"""The solve and the projection: a slow twin, the optimality conditions, and torch on the CPU."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.uncertainty.recalibration.embedding import (
    Backend,
    laplace_kernel,
    laplace_self_term,
    median_heuristic,
    outcome_bandwidth,
    project_on_simplex,
    squared_distances,
)
from armillary.uncertainty.recalibration.energy import Embedded


def project_by_bisection(v: np.ndarray) -> np.ndarray:
    """The threshold tau with sum max(v - tau, 0) = 1, by bisection."""
    low, high = v.min() - 1, v.max()
    for _ in range(200):
        tau = (low + high) / 2
        low, high = (tau, high) if np.maximum(v - tau, 0).sum() > 1 else (low, tau)
    return np.maximum(v - tau, 0)


@given(st.integers(1, 30), st.integers(0, 10**6), st.floats(0.001, 100))
@settings(max_examples=50, deadline=None)
def test_projection_matches_bisection_and_its_optimality_conditions(n, seed, scale):
    v = scale * np.random.default_rng(seed).normal(size=(n, 3))
    w = project_on_simplex(v, Backend())
    for j in range(3):
        np.testing.assert_allclose(w[:, j], project_by_bisection(v[:, j]), atol=1e-9 * (1 + scale))
        # Karush-Kuhn-Tucker: v - w is constant where w > 0 and smaller elsewhere.
        gap = (v - w)[:, j]
        held = w[:, j] > 0
        assert np.ptp(gap[held]) < 1e-9 * (1 + scale)
        assert (gap[~held] <= gap[held].max() + 1e-9 * (1 + scale)).all()
    np.testing.assert_allclose(w.sum(axis=0), 1)


def test_projection_is_no_clip_and_renormalise():
    v = np.array([[0.9], [0.5], [-0.2]])
    np.testing.assert_allclose(project_on_simplex(v, Backend())[:, 0], [0.7, 0.3, 0.0])


def test_projection_of_many_columns_is_cut_into_the_same_pieces():
    v = np.random.default_rng(0).normal(size=(7, 1100))
    whole = project_on_simplex(v, Backend())
    apart = np.concatenate([project_on_simplex(v[:, [j]], Backend()) for j in range(1100)], axis=1)
    np.testing.assert_array_equal(whole, apart)


@given(st.integers(1, 20), st.integers(0, 10**6), st.floats(0.05, 20))
@settings(max_examples=30, deadline=None)
def test_self_term_in_one_pass_equals_the_quadratic_form(n, seed, theta):
    rng = np.random.default_rng(seed)
    y, w = np.sort(rng.normal(size=n).round(1)), rng.normal(size=(n, 4))
    gram = np.exp(-np.abs(y[:, None] - y) / theta)
    expected = np.einsum("nt,nm,mt->t", w, gram, w)
    np.testing.assert_allclose(laplace_self_term(w, y, theta), expected, atol=1e-9)


def test_bandwidths_leave_ties_out():
    square = np.array([[0, 0, 4.0], [0, 0, 9.0], [4.0, 9.0, 0]])
    assert median_heuristic(square) == 2.5
    assert median_heuristic(np.zeros((3, 3))) == 0
    assert outcome_bandwidth(np.array([0.0, 1, 3])) == 2
    assert outcome_bandwidth(np.array([0.0, 0, 0, 0, 2])) == 2
    assert outcome_bandwidth(np.zeros(4)) == 1
    # The median gap of many uniform numbers is 1 - 1/sqrt(2); order statistics stand for all.
    many = np.random.default_rng(0).random(30_000)
    np.testing.assert_allclose(outcome_bandwidth(many), 1 - np.sqrt(0.5), atol=0.01)


def test_torch_gives_what_numpy_gives():
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    points = Embedded(rng.normal(size=(40, 6)), np.zeros(40), rng.random(40))
    found = []
    for device in (None, "cpu"):
        backend = Backend(device)
        gram = laplace_kernel(squared_distances(points, points, backend), 1.5, backend)
        ridge = backend.put(0.1 * np.eye(40))
        solved = backend.solve(backend.factor(gram + ridge), gram)
        values, _ = backend.eigh(gram)
        found.append([backend.take(a) for a in (gram, values, project_on_simplex(solved, backend))])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)
