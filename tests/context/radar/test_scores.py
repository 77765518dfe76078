"""Support and doubt by hand on small cases."""

from __future__ import annotations

import numpy as np
import pytest

from armillary.context.radar.scores import centrality, stretched, unary


def test_a_single_answer():
    S, F = unary([[1.0]], [[0.0]], [3], 10)
    assert (S[0], F[0]) == (0.9, 0.1)


def test_two_against_one():
    M = np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1.0]])
    S, F = unary(M, 1 - M, [0, 1, 2], 3)
    # Centrality is 1 for the pair and 0 for the third (power iteration favours the pair).
    np.testing.assert_allclose(centrality(M), [1, 1, 0], atol=2e-3)
    # S: exp(0) and exp(-1/3), stretched; the third has none.
    assert S[0] == pytest.approx(0.99)
    assert S[1] == pytest.approx(np.exp(-1 / 3), abs=5e-3)
    assert S[2] == pytest.approx(0.01)
    # F: the pair meets no central opposition, the third all of it.
    np.testing.assert_allclose(F, [0.01, 0.01, 0.99], atol=2e-3)


def test_two_opposed_answers_differ_in_rank_only():
    M = np.eye(2)
    S, F = unary(M, 1 - M, [0, 1], 2)
    # Equal centralities stretch to 0, so that ranks speak through the tiny floor of the support.
    np.testing.assert_allclose(S, [0.99, 0.01])
    np.testing.assert_allclose(F, [0.5, 0.5])


def test_equal_values_become_a_half():
    np.testing.assert_array_equal(stretched(np.array([0.3, 0.3, 0.3])), [0.5, 0.5, 0.5])


def test_doubt_matches_a_slow_twin():
    rng = np.random.default_rng(2)
    n = 7
    M = np.triu(rng.random((n, n)), 1)
    C = np.triu(rng.random((n, n)), 1)
    M, C = M + M.T + np.eye(n), C + C.T
    c = centrality(M)
    raw = [
        sum(C[i, j] * c[j] for j in range(n) if j != i)
        / (sum(c[j] for j in range(n) if j != i) + 1e-8)
        for i in range(n)
    ]
    _, F = unary(M, C, list(range(n)), n)
    np.testing.assert_allclose(F, stretched(np.array(raw)), rtol=1e-9)


def test_nan_conflict_is_refused_with_its_pair():
    C = np.zeros((2, 2))
    C[0, 1] = C[1, 0] = np.nan
    with pytest.raises(ValueError, match=r"C\[0, 1\] = nan"):
        unary(np.eye(2), C, [0, 1], 2)


@pytest.mark.parametrize(
    ("M", "C", "ranks", "documents", "told"),
    [
        (np.eye(2), np.zeros((2, 2)), [0], 2, "ranks"),
        (np.eye(2), np.zeros((3, 3)), [0, 1], 2, "C "),
        (np.eye(2), np.zeros((2, 2)), [0, 1], 0, "documents=0"),
        (5 * np.eye(2), np.zeros((2, 2)), [0, 1], 2, "give values from 0 to 1"),
        (np.eye(2), np.full((2, 2), 1.5), [0, 1], 2, "give values from 0 to 1"),
        (np.ones(2), np.zeros((2, 2)), [0, 1], 2, "square"),
    ],
)
def test_what_does_not_fit_is_told(M, C, ranks, documents, told):
    with pytest.raises(ValueError, match=told):
        unary(M, C, ranks, documents)
