"""From agreement and conflict of answers to support S and doubt F, the unary terms of the energy.

Symbols as in the paper: M agreement, C conflict (n x n), c centrality, r_i the rank of answer i's
document (0 is the first), K the number of documents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from armillary.context.radar.cut import check_pairs

if TYPE_CHECKING:
    from jaxtyping import Float
    from numpy.typing import ArrayLike

#: Unary terms never reach 0 or 1: nobody is beyond doubt, and nobody beyond rehabilitation.
LOW, HIGH = 0.01, 0.99
_TINY = 1e-8


def unary(
    M: ArrayLike, C: ArrayLike, ranks: ArrayLike, documents: int
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Support and doubt of each answer.

    S_i grows with the centrality of an answer in the agreement graph and falls with its rank;
    F_i is the share of the other answers' centrality that contradicts it.

    Args:
        M: (n, n) agreement in [0, 1], symmetric, M_ii = 1.
        C: (n, n) conflict in [0, 1], symmetric, C_ii = 0.
        ranks: (n,) rank of each answer's document, from 0.
        documents: how many documents there were, abstaining ones too.

    Returns:
        S and F, (n,) each, within [0.01, 0.99]. A single answer has S = 0.9, F = 0.1.

    Raises:
        ValueError: a matrix is not symmetric, outside [0, 1] or not finite, shapes do not fit, or
            ``documents`` is under 1.
    """
    agreement, conflict = np.asarray(M, dtype=float), np.asarray(C, dtype=float)
    check_pairs("M", agreement, most=1.0)
    check_pairs("C", conflict, most=1.0)
    n = len(agreement)
    if conflict.shape != agreement.shape or np.shape(ranks) != (n,):
        raise ValueError(
            f"M {agreement.shape}, C {conflict.shape}, ranks {np.shape(ranks)}: give (n, n), "
            "(n, n) and (n,)"
        )
    if documents < 1:
        raise ValueError(f"documents={documents}: give how many there were, at least 1")
    if n == 1:
        return np.array([0.9]), np.array([0.1])
    c = centrality(agreement)
    raw_support = (c + _TINY) * np.exp(-np.asarray(ranks, dtype=float) / documents)
    raw_doubt = (conflict @ c - np.diag(conflict) * c) / (c.sum() - c + _TINY)
    return stretched(raw_support), stretched(raw_doubt)


def centrality(M: Float[np.ndarray, "n n"]) -> Float[np.ndarray, " n"]:
    """Ten power iterations on M + 0.01 I from the uniform vector, then stretched to [0, 1]."""
    v = np.full(len(M), 1 / len(M))
    step = M + 0.01 * np.eye(len(M))
    for _ in range(10):
        v = step @ v
        v = v / (np.linalg.norm(v) + _TINY)
    span = np.ptp(v)
    return (v - v.min()) / (span + _TINY)


def stretched(values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Min-max to [0, 1], clipped to [0.01, 0.99]; equal values become 0.5."""
    span = np.ptp(values)
    if span < 1e-12:
        return np.full(len(values), 0.5)
    return np.clip((values - values.min()) / span, LOW, HIGH)
