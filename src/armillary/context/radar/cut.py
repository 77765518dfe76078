"""Which answers to trust: the exact minimum of a binary energy, by one minimum cut.

With x_i = 1 for "trust answer i", support S_i, doubt F_i and agreement M_ij >= 0,

    E(x) = sum_i [ S_i (1 - x_i) + F_i x_i ] + sum_{i<j} M_ij |x_i - x_j|.

M >= 0 makes E submodular, so that a minimum s-t cut minimises it exactly: capacity S_i on s->i, F_i
on i->t, M_ij on i<->j. Trusted is what s still reaches in the residual graph, the smallest of all
minimisers: a tie is not trusted. (Greig, Porteous, Seheult 1989; the paper's selection step.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Bool, Float
    from numpy.typing import ArrayLike

#: Largest capacity: an edge and its reverse together must fit the solver's 32-bit integers.
_LARGEST = 2.0**29


def energy(x: ArrayLike, S: ArrayLike, F: ArrayLike, M: ArrayLike) -> float:
    """The energy of a choice.

    Args:
        x: (n,) 0/1 or booleans, 1 = trusted.
        S: (n,) support, at least 0.
        F: (n,) doubt, at least 0.
        M: (n, n) agreement, symmetric, at least 0; the diagonal does not count.

    Raises:
        ValueError: ``x`` is not (n,) of zeros and ones, or what `select` refuses.
    """
    support, doubt, agreement = checked(S, F, M)
    chosen = _choice("x", x, len(support)).astype(float)
    apart = np.abs(chosen[:, None] - chosen[None, :])
    pairs = (np.triu(agreement, 1) * apart).sum()
    return float((support * (1 - chosen) + doubt * chosen).sum() + pairs)


def select(S: ArrayLike, F: ArrayLike, M: ArrayLike) -> Bool[np.ndarray, " n"]:
    """The smallest set of trusted answers that minimises the energy.

    Args:
        S: (n,) support, at least 0.
        F: (n,) doubt, at least 0.
        M: (n, n) agreement, symmetric, at least 0; the diagonal does not count.

    Returns:
        (n,) booleans. The energy is minimal up to 2**-29 of the largest weight, an edge.

    Raises:
        ValueError: shapes do not fit, or a weight is negative, not finite or not symmetric; the
            message names the first pair.
    """
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    support, doubt, agreement = checked(S, F, M)
    n = len(support)
    largest = max(support.max(initial=0), doubt.max(initial=0), agreement.max(initial=0))
    if largest == 0:
        return np.zeros(n, dtype=bool)
    # A power of two: weights that are binary fractions stay exact, and their ties stay ties.
    scale = 2.0 ** np.floor(np.log2(_LARGEST / largest))
    graph = _graph(support * scale, doubt * scale, agreement * scale)
    source, sink = n, n + 1
    found = maximum_flow(graph, source, sink)
    if found.flow_value < 0:
        raise OverflowError(f"the flow over {n} answers does not fit the solver's integers")
    residual = graph - found.flow
    residual.eliminate_zeros()
    reached = breadth_first_order(residual, source, return_predecessors=False)
    chosen = np.zeros(n + 2, dtype=bool)
    chosen[reached] = True
    return chosen[:n]


def margin(
    S: ArrayLike,
    F: ArrayLike,
    M: ArrayLike,
    members: ArrayLike,
    *,
    best: ArrayLike | None = None,
) -> float:
    """How much energy it costs to distrust some answers: the confidence in them, at least 0.

    With x_i = 0 forced for the members, their support is lost, and whoever agrees with them pays
    that agreement to be trusted: F_j grows by sum of M_ij over members i. What is left is a cut.

    Args:
        S, F, M: as for `select`.
        members: (n,) booleans, the answers that are forced to "do not trust".
        best: (n,) what `select` gave, where it is known already.

    Raises:
        ValueError: ``members`` is not (n,) of zeros and ones, or what `select` refuses.
    """
    support, doubt, agreement = checked(S, F, M)
    out = _choice("members", members, len(support))
    free = ~out
    burdened = doubt[free] + agreement[np.ix_(free, out)].sum(axis=1)
    rest = agreement[np.ix_(free, free)]
    forced = support[out].sum() + energy(
        select(support[free], burdened, rest), support[free], burdened, rest
    )
    chosen = select(support, doubt, agreement) if best is None else best
    least = energy(chosen, support, doubt, agreement)
    return max(0.0, float(forced - least))


def checked(
    S: ArrayLike, F: ArrayLike, M: ArrayLike
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"], Float[np.ndarray, "n n"]]:
    """The weights as float arrays.

    Raises:
        ValueError: see `select`.
    """
    support, doubt, agreement = (np.asarray(a, dtype=float) for a in (S, F, M))
    n = len(support) if support.ndim == 1 else -1
    if doubt.shape != (n,) or agreement.shape != (n, n):
        raise ValueError(
            f"S {support.shape}, F {doubt.shape}, M {agreement.shape}: give (n,), (n,) and (n, n)"
        )
    for name, values in (("S", support), ("F", doubt)):
        bad = np.flatnonzero(~np.isfinite(values) | (values < 0))
        if len(bad):
            at = int(bad[0])
            raise ValueError(f"{name}[{at}] = {values[at]}: give finite numbers, at least 0")
    check_pairs("M", agreement)
    return support, doubt, agreement


def _choice(name: str, given: ArrayLike, n: int) -> Bool[np.ndarray, " n"]:
    values = np.asarray(given)
    if values.shape != (n,) or not np.isin(values, (0, 1)).all():
        raise ValueError(f"{name}: got {values.tolist()!r:.80}, give {n} zeros and ones")
    return values.astype(bool)


def check_pairs(name: str, matrix: Float[np.ndarray, "n n"], *, most: float | None = None) -> None:
    """Refuse pair weights that would break exactness.

    Args:
        name: what the message calls it.
        matrix: (n, n).
        most: the largest weight that is allowed, to rounding; None for any.

    Raises:
        ValueError: it is not square, or naming the first pair that is not finite, negative, above
            ``most`` or not symmetric.
    """
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"{name} {matrix.shape}: give a square matrix")
    if most is not None and (matrix > most + 1e-9).any():
        i, j = map(int, np.argwhere(matrix > most + 1e-9)[0])
        raise ValueError(f"{name}[{i}, {j}] = {matrix[i, j]}: give values from 0 to {most:g}")
    wrong = ~np.isfinite(matrix) | (matrix < 0)
    if wrong.any():
        i, j = map(int, np.argwhere(wrong)[0])
        raise ValueError(
            f"{name}[{i}, {j}] = {matrix[i, j]}: pair weights must be finite and at least 0, or "
            "the cut is not exact"
        )
    skew = np.abs(matrix - matrix.T) > 1e-9
    if skew.any():
        i, j = map(int, np.argwhere(skew)[0])
        raise ValueError(
            f"{name}[{i}, {j}] = {matrix[i, j]} but {name}[{j}, {i}] = {matrix[j, i]}: pair "
            f"weights must be symmetric; average both directions first"
        )


def _graph(support: np.ndarray, doubt: np.ndarray, agreement: np.ndarray):
    """The capacities as a sparse matrix of 32-bit integers; nodes n and n + 1 are s and t."""
    from scipy.sparse import coo_array, csr_array

    n = len(support)
    tied = np.rint(agreement) > 0
    np.fill_diagonal(tied, False)
    left, right = np.nonzero(tied)
    nodes = np.arange(n)
    rows = np.concatenate([np.full(n, n), nodes, left])
    columns = np.concatenate([nodes, np.full(n, n + 1), right])
    values = np.rint(np.concatenate([support, doubt, agreement[left, right]])).astype(np.int32)
    return csr_array(coo_array((values, (rows, columns)), shape=(n + 2, n + 2)))
