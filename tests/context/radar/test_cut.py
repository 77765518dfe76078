"""The cut gives the least energy, the smallest set that does, and a margin that is a difference."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.context.radar.cut import energy, margin, select


def slow_energy(x, S, F, M):
    """The definition, term by term."""
    n = len(x)
    unary = sum(S[i] * (1 - x[i]) + F[i] * x[i] for i in range(n))
    return unary + sum(M[i][j] * abs(x[i] - x[j]) for i in range(n) for j in range(i + 1, n))


def every_choice(n):
    return [np.array(x) for x in itertools.product((0, 1), repeat=n)]


@st.composite
def instances(draw, grid=None):
    """S, F, M of 1 to 7 answers; on a grid of 1/64, sums are exact and ties are ties."""
    n = draw(st.integers(1, 7))
    weight = st.integers(0, 64).map(lambda k: k / 64) if grid else st.floats(0, 1, width=32)
    S, F = (np.array(draw(st.lists(weight, min_size=n, max_size=n))) for _ in range(2))
    M = np.zeros((n, n))
    for i in range(n):
        for j in range(i + 1, n):
            M[i, j] = M[j, i] = draw(st.one_of(st.just(0.0), weight))
    return S, F, M


@settings(max_examples=120, deadline=None)
@given(instances())
def test_no_choice_has_less_energy(instance):
    found = select(*instance)
    assert energy(found, *instance) == pytest.approx(slow_energy(found * 1, *instance), abs=1e-9)
    least = min(slow_energy(x, *instance) for x in every_choice(len(found)))
    assert slow_energy(found * 1, *instance) == pytest.approx(least, abs=1e-6)


@settings(max_examples=80, deadline=None)
@given(instances(grid=True))
def test_of_equal_choices_the_smallest_is_taken(instance):
    choices = every_choice(len(instance[0]))
    energies = np.array([slow_energy(x, *instance) for x in choices])
    minimisers = [x for x, e in zip(choices, energies, strict=True) if e == energies.min()]
    np.testing.assert_array_equal(select(*instance), np.all(minimisers, axis=0))


@settings(max_examples=60, deadline=None)
@given(instances(), st.data())
def test_margin_is_the_price_of_distrust(instance, data):
    n = len(instance[0])
    members = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    choices = every_choice(n)
    forced = min(slow_energy(x, *instance) for x in choices if not x[members].any())
    least = min(slow_energy(x, *instance) for x in choices)
    found = margin(*instance, members)
    assert found >= 0
    assert found == pytest.approx(forced - least, abs=1e-6)


def test_disjoint_classes_are_kept_by_the_sign_of_their_sum():
    S, F = np.array([0.9, 0.2, 0.3, 0.4]), np.array([0.1, 0.8, 0.6, 0.2])
    M = np.array([[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1.0]])
    # Class 0: .9 + .2 - .1 - .8 = .2 > 0, kept whole; class 1: .7 - .8 < 0, dropped whole.
    np.testing.assert_array_equal(select(S, F, M), [True, True, False, False])


def test_weak_agreement_may_split_a_class():
    found = select([0.9, 0.1], [0.1, 0.8], [[1, 0.5], [0.5, 1]])
    np.testing.assert_array_equal(found, [True, False])


def test_a_tie_is_not_trusted():
    np.testing.assert_array_equal(select([0.5], [0.5], [[1.0]]), [False])
    np.testing.assert_array_equal(select([0.0], [0.0], [[0.0]]), [False])


def test_large_weights_and_many_answers_do_not_overflow():
    rng = np.random.default_rng(0)
    n = 600
    S, F = rng.random((2, n)) * 1e6
    M = np.triu(rng.random((n, n)), 1) * 1e6
    M = M + M.T
    found = select(S, F, M)
    none, everyone = np.zeros(n), np.ones(n)
    assert energy(found, S, F, M) <= min(energy(none, S, F, M), energy(everyone, S, F, M)) + 1e-3


def test_same_cut_as_networkx():
    networkx_select = (
        pytest.importorskip("networkx")
        and __import__(
            "armillary.context.radar.peers", fromlist=["networkx_select"]
        ).networkx_select
    )
    rng = np.random.default_rng(1)
    for n in (5, 20):
        M = np.triu(rng.random((n, n)) * (rng.random((n, n)) < 0.3), 1)
        S, F, M = rng.random(n), rng.random(n), M + M.T
        assert energy(select(S, F, M), S, F, M) == pytest.approx(
            energy(networkx_select(S, F, M), S, F, M), abs=1e-6
        )


@pytest.mark.parametrize(
    ("S", "F", "M", "told"),
    [
        ([1, 1], [0, 0], [[1, -0.1], [-0.1, 1]], r"M\[0, 1\] = -0.1: pair weights"),
        ([1, 1], [0, 0], [[1, 0.2], [0.1, 1]], r"M\[0, 1\] = 0.2 but M\[1, 0\] = 0.1"),
        ([1, 1], [0, 0], [[1, np.nan], [np.nan, 1]], r"M\[0, 1\] = nan"),
        ([1, np.inf], [0, 0], np.eye(2), r"S\[1\] = inf"),
        ([1, 1], [0, -1], np.eye(2), r"F\[1\] = -1"),
        ([1, 1], [0], np.eye(2), "give"),
    ],
)
def test_weights_that_break_exactness_are_refused(S, F, M, told):
    with pytest.raises(ValueError, match=told):
        select(S, F, M)


@pytest.mark.parametrize("x", [[2, 5], [1], "ab", [0.5, 1]])
def test_a_choice_is_zeros_and_ones(x):
    with pytest.raises(ValueError, match="give 2 zeros and ones"):
        energy(x, [1, 1], [0, 0], np.eye(2))
    with pytest.raises(ValueError, match="members: got"):
        margin([1, 1], [0, 0], np.eye(2), x)
