"""Energy distance: naive double sums, the exact merge, and the embedding by cells."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.uncertainty.recalibration import energy
from armillary.uncertainty.recalibration.distributions import (
    GaussianMixture,
    SupportWeights,
    WeightedSamples,
)
from armillary.uncertainty.recalibration.embedding import Backend, squared_distances
from armillary.uncertainty.recalibration.energy import (
    bin_weights,
    embed,
    energy_distances,
    place_knots,
)


def naive(p: WeightedSamples, q: WeightedSamples) -> np.ndarray:
    """All double sums written out."""

    def mean_gap(x, w, y, v):
        return float(w @ np.abs(x[:, None] - y) @ v)

    a = list(zip(p._row_values(), p._row_weights(), strict=True))
    b = list(zip(q._row_values(), q._row_weights(), strict=True))
    return np.array(
        [[mean_gap(*r, *s) - mean_gap(*r, *r) / 2 - mean_gap(*s, *s) / 2 for s in b] for r in a]
    )


def by_embedding(p, knots, q=None):
    at = embed(p, knots)
    return squared_distances(at, at if q is None else embed(q, knots), Backend())


def rows(n, m, seed, ties=False):
    rng = np.random.default_rng(seed)
    x = rng.normal(rng.normal(size=(n, 1)), np.exp(rng.normal(size=(n, 1)) / 2), (n, m))
    return x.round(0) if ties else x


@given(
    st.integers(1, 6), st.integers(1, 6), st.integers(1, 9), st.integers(0, 10**6), st.booleans()
)
@settings(max_examples=40, deadline=None)
def test_merge_equals_the_double_sums(n, t, m, seed, ties):
    rng = np.random.default_rng(seed)
    p = WeightedSamples(rows(n, m, seed, ties), rng.random((n, m)) + 0.01)
    q = WeightedSamples(rows(t, m + 2, seed + 1, ties))
    np.testing.assert_allclose(energy_distances(p, q), np.maximum(naive(p, q), 0), atol=1e-10)
    within = energy_distances(p)
    np.testing.assert_allclose(within, np.maximum(naive(p, p), 0), atol=1e-10)
    assert (np.diag(within) == 0).all()
    assert (within == within.T).all()


def test_blocks_of_rows_give_what_all_rows_at_once_give(monkeypatch):
    p, q = WeightedSamples(rows(5, 20, 0)), WeightedSamples(rows(11, 20, 1))
    whole = energy_distances(p, q)
    monkeypatch.setattr(energy, "POOLED_POINTS", 60)
    np.testing.assert_allclose(energy_distances(p, q), whole, atol=1e-12)


@given(st.integers(0, 10**6), st.floats(0.01, 100), st.floats(-50, 50))
@settings(max_examples=25, deadline=None)
def test_distance_ignores_shifts_and_scales_with_units(seed, scale, shift):
    x = rows(4, 6, seed)
    e = energy_distances(WeightedSamples(x))
    moved = energy_distances(WeightedSamples(shift + scale * x))
    np.testing.assert_allclose(moved, scale * e, atol=1e-9 * (1 + abs(shift)) * (1 + scale))


@pytest.mark.parametrize("m", [50, 400])
def test_embedding_is_below_the_exact_distance_and_within_its_stated_error(m):
    p = WeightedSamples(rows(60, m, 1))
    exact = energy_distances(p)
    pairs = np.triu_indices(60, 1)
    for count, typical, largest in ((513, 5e-4, 0.06), (2049, 5e-5, 0.01)):
        near = by_embedding(p, place_knots(p, count))
        error = 1 - np.sqrt(near[pairs] / exact[pairs])
        assert error.min() > -1e-7, "cell means can only shrink a distance"
        assert np.median(error) < typical
        # The relative error is largest for rows that are nearly the same.
        assert error.max() < largest
        scale = np.sqrt(np.median(exact[pairs]))
        assert (np.sqrt(exact[pairs]) - np.sqrt(near[pairs])).max() < 4e-3 * scale


def test_embedding_is_exact_on_a_shared_support():
    rng = np.random.default_rng(0)
    p = SupportWeights(rng.random((6, 40)), rng.normal(size=40))
    knots = place_knots(p, 513)
    assert len(knots) == 40
    np.testing.assert_allclose(by_embedding(p, knots), energy_distances(p), atol=1e-12)


def test_gaussian_distance_matches_a_large_sample():
    rng = np.random.default_rng(0)
    p = GaussianMixture(
        [[0.0, 2.0], [1.0, 1.0]], [[1.0, 0.2], [0.5, 4.0]], [[0.3, 0.7], [0.5, 0.5]]
    )
    draws = WeightedSamples(p.sample(100_000, rng))
    np.testing.assert_allclose(energy_distances(p), energy_distances(draws), atol=3e-3)


def test_two_unit_gaussians_have_the_closed_form():
    p = GaussianMixture([0.0, 3.0], [1.0, 1.0])
    # E|N(3, 2)| - E|N(0, 2)|
    from scipy.stats import norm

    expected = 3 * (2 * norm.cdf(3 / np.sqrt(2)) - 1) + 2 * np.sqrt(2) * (
        norm.pdf(3 / np.sqrt(2)) - norm.pdf(0)
    )
    np.testing.assert_allclose(energy_distances(p)[0, 1], expected)
    np.testing.assert_allclose(by_embedding(p, place_knots(p, 513))[0, 1], expected, rtol=1e-3)


def test_rows_beyond_the_knots_keep_their_distance():
    p = WeightedSamples(rows(10, 30, 0))
    knots = place_knots(p, 129)
    far = WeightedSamples([[100.0], [107.0]])
    exact = energy_distances(p, far)
    np.testing.assert_allclose(by_embedding(p, knots, far), exact, rtol=2e-3)
    # Two point masses beyond the same end: exactly their gap.
    at = embed(far, knots)
    np.testing.assert_allclose(squared_distances(at, at, Backend())[0, 1], 7, atol=1e-9)


def test_kernel_of_the_embedding_is_positive_definite_with_rows_beyond_the_knots():
    inner = WeightedSamples(rows(20, 30, 0))
    outer = WeightedSamples(3 * rows(20, 30, 1))
    square = by_embedding(outer, place_knots(inner, 65))
    eigenvalues = np.linalg.eigvalsh(np.exp(-np.sqrt(square)))
    assert eigenvalues.min() > -1e-10


def test_bin_weights_keep_mass_mean_and_a_smooth_expectation():
    p = WeightedSamples(rows(5, 200, 0))
    knots = place_knots(p, 513)
    weights = bin_weights(p, knots)
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(weights @ knots, p.mean(), atol=1e-6)
    expected = np.cos(p.values).mean(axis=1)
    np.testing.assert_allclose(weights @ np.cos(knots), expected, atol=1e-3)


def test_exact_distance_of_unlike_kinds_is_refused():
    with pytest.raises(TypeError, match="of one kind"):
        energy_distances(WeightedSamples([[0.0, 1.0]]), GaussianMixture([0.0], [1.0]))
