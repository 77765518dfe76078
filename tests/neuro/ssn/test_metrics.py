"""Coding metrics by hand, and what they must not see."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.neuro.ssn.metrics import (
    active_fraction,
    code_kurtosis,
    energy,
    field_similarity,
    rate_variation,
    treves_rolls,
)


def test_by_hand():
    r = np.array([[4.0, 0.0, 0.0, 0.0], [2.0, 2.0, 2.0, 2.0], [0.0, 0.0, 0.0, 0.0], [8, 1, 1, 0]])
    np.testing.assert_allclose(active_fraction(r), [0.25, 1, 0, 0.75])
    np.testing.assert_allclose(active_fraction(r, 0.2), [0.25, 1, 0, 0.25])
    np.testing.assert_allclose(treves_rolls(r), [0.75, 0, 1, 1 - 2.5**2 / 16.5])
    np.testing.assert_allclose(energy(r), [4, 8, 0, 10])


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.floats(1e-6, 1e6))
def test_ratios_do_not_see_the_scale(seed, scale):
    r = np.maximum(np.random.default_rng(seed).normal(0, 1, (5, 9)), 0)
    np.testing.assert_array_equal(active_fraction(r), active_fraction(scale * r))
    np.testing.assert_allclose(treves_rolls(r), treves_rolls(scale * r), atol=1e-9)
    np.testing.assert_allclose(energy(scale * r), scale * energy(r))


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000))
def test_sparseness_is_one_minus_the_participation_ratio(seed):
    r = np.random.default_rng(seed).gamma(0.5, 1, (6, 11))
    participation = r.sum(1) ** 2 / (r**2).sum(1) / 11
    np.testing.assert_allclose(treves_rolls(r), 1 - participation)


def test_kurtosis_variation_and_similarity_of_known_codes():
    rng = np.random.default_rng(0)
    assert code_kurtosis(rng.normal(size=(200_000, 2))) == pytest.approx(0, abs=0.05)
    assert code_kurtosis(rng.exponential(size=(400_000, 2))) == pytest.approx(6, abs=0.6)
    assert code_kurtosis(np.zeros((5, 3))) == 0
    assert rate_variation(np.array([[1.0, 3.0], [1.0, 3.0]])) == pytest.approx(0.5)
    assert rate_variation(np.zeros((2, 2))) == 0
    assert field_similarity(np.eye(3)) == 0
    assert field_similarity(np.array([[1.0, 0], [-2.0, 0], [1, 1]])) == pytest.approx(1)


def test_bad_shapes_are_told():
    with pytest.raises(ValueError, match=r"rates has the shape \(3,\)"):
        energy(np.ones(3))
