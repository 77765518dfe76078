"""Energy distance between predictive distributions, exactly and through an embedding.

For independent X, X' ~ P and Y, Y' ~ Q,

    e(P, Q) = E|X - Y| - E|X - X'|/2 - E|Y - Y'|/2 = integral of (F_P - F_Q)^2,

and d = sqrt(e) is a Hilbertian metric: exp(-d/theta) and exp(-e/theta) are positive definite.

Exact, for weighted samples: with H_P(t) = E (t - X)+ one has E|X - y| = 2 H_P(y) + E X - y. H_P at
all atoms of all other rows is one running sum along the pooled sorted order, so a pair of
m-samples costs O(m) and the rows are sorted once.

Embedded: ``phi_k = (H(t_k+1) - H(t_k)) / sqrt(t_k+1 - t_k)`` is the mean of F over a cell of knots
times the square root of its width, so that ||phi_P - phi_Q||^2 is the energy distance between the
CDFs averaged over cells: never above e, second-order near to it, and one matrix product for all
pairs. Mass beyond the end knots adds ``|E(t_1 - X)+ - E(t_1 - Y)+|`` and its mirror image: exact
for point masses, negative definite like the rest, zero within the knots.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from armillary.uncertainty.recalibration.distributions import (
    Floats,
    GaussianMixture,
    Predictive,
    WeightedSamples,
    mean_absolute_normal,
)

#: Rows that are pooled to place the knots: more do not move a quantile of the pool visibly.
_POOL_ROWS = 2000
#: Atoms that are pooled and sorted at once: what works on them stays in the processor's cache.
POOLED_POINTS = 300_000


def energy_distances(p: Predictive, q: Predictive | None = None) -> Floats:
    """Exact energy distances e(P_i, Q_j), without an embedding.

    Args:
        p: n distributions.
        q: t distributions of the same kind; None: p itself (the result is then symmetric with a
            zero diagonal).

    Returns:
        (n, t) energy distances >= 0, in units of y. Weighted samples cost O(n t m), Gaussian
        mixtures O(n t C^2).

    Raises:
        TypeError: p and q are not both weighted samples or both Gaussian mixtures.
    """
    other = p if q is None else q
    if isinstance(p, WeightedSamples) and isinstance(other, WeightedSamples):
        cross = _cross_samples(p, other)
    elif isinstance(p, GaussianMixture) and isinstance(other, GaussianMixture):
        cross = _cross_mixtures(p, other)
    else:
        raise TypeError(
            f"exact distances need both sides of one kind, not {type(p).__name__} and "
            f"{type(other).__name__}: use the embedding (n_knots=513)"
        )
    e = cross - p.half_spread()[:, None] - other.half_spread()
    if q is None:
        e = (e + e.T) / 2
        np.fill_diagonal(e, 0)
    return np.maximum(e, 0)


def _cross_samples(p: WeightedSamples, q: WeightedSamples) -> Floats:
    """(n, t) E|X - Y| for all pairs of rows."""
    values, weights = p._row_values(), p._row_weights()
    mass, first = np.zeros((2, len(p), values.shape[1] + 1))
    np.cumsum(weights, axis=1, out=mass[:, 1:])
    np.cumsum(weights * values, axis=1, out=first[:, 1:])
    rows = max(1, POOLED_POINTS // q.values.shape[-1])
    found = np.empty((len(p), len(q)))
    for start in range(0, len(q), rows):
        part = slice(start, start + rows)
        _expected_overlap(values, mass, first, q._pick(part), found[:, part])
    return 2 * found + p.mean()[:, None] - q.mean()


def _expected_overlap(
    values: Floats, mass: Floats, first: Floats, q: WeightedSamples, out: Floats
) -> None:
    """Put E H_P(Y) for all P (rows of atoms, with running sums) and all Y ~ Q into ``out``."""
    t, m = q._row_values().shape
    pool = q._row_values().ravel()
    order = np.argsort(pool, kind="stable")
    points = pool[order]
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    rank = rank.reshape(t, m)
    q_weights = q._row_weights()
    for i, x in enumerate(values):
        runs = np.diff(np.searchsorted(points, x), prepend=0, append=len(points))
        h = points * np.repeat(mass[i], runs)
        h -= np.repeat(first[i], runs)
        at = h[rank]
        out[i] = at.mean(axis=1) if q.weights is None else np.einsum("tm,tm->t", at, q_weights)


def _cross_mixtures(p: GaussianMixture, q: GaussianMixture) -> Floats:
    """(n, t) E|X - Y| from all pairs of components."""
    found = np.empty((len(p), len(q)))
    for i in range(len(p)):
        mu = p.mu[i][:, None, None] - q.mu
        pairs = mean_absolute_normal(mu, p.var[i][:, None, None] + q.var)
        found[i] = np.einsum("c,tb,ctb->t", p.pi[i], q.pi, pairs)
    return found


@dataclasses.dataclass(frozen=True)
class Embedded:
    """Distributions as points: (n, K - 1) cells, and (n,) means of the mass beyond either end."""

    cells: Floats
    low: Floats
    high: Floats

    def __len__(self) -> int:
        return len(self.cells)

    def __getitem__(self, rows: slice | np.ndarray) -> Embedded:
        return Embedded(self.cells[rows], self.low[rows], self.high[rows])


def place_knots(p: Predictive, n_knots: int) -> Floats:
    """(K,) increasing knots: quantiles of all rows pooled, and both ends.

    Where the rows share a support of at most ``2 n_knots`` atoms, the knots are these atoms and the
    embedding is exact.
    """
    low, high = p.span()
    if isinstance(p, WeightedSamples) and p.shared and len(p.values) <= 2 * n_knots:
        return np.unique(p.values)
    step = max(1, len(p) // _POOL_ROWS)
    points, weights = p[::step].pooled()
    order = np.argsort(points, kind="stable")
    mass = np.cumsum(weights[order])
    levels = (np.arange(n_knots - 2) + 0.5) / (n_knots - 2) * mass[-1]
    at = np.minimum(np.searchsorted(mass, levels), len(order) - 1)
    return _apart(np.unique(np.concatenate([[low], points[order][at], [high]])))


def _apart(knots: Floats) -> Floats:
    """Knots without those that rounding alone tells from their neighbour: slopes divide by gaps."""
    least = 1e-8 * max(knots[-1] - knots[0], abs(knots[-1]) * 1e-4)
    kept = [knots[0]]
    for knot in knots[1:]:
        if knot - kept[-1] > least:
            kept.append(knot)
    return np.array(kept)


def embed(p: Predictive, knots: Floats) -> Embedded:
    """The points whose squared distances approximate the energy distances."""
    h = p.integrated_cdf(knots)
    cells = np.diff(h, axis=1) / np.sqrt(np.diff(knots))
    above = np.maximum(p.mean() - knots[-1] + h[:, -1], 0)
    return Embedded(cells, h[:, 0], above)


def bin_weights(p: Predictive, knots: Floats) -> Floats:
    """(n, K) weights on the knots that give every piecewise-linear function its expectation.

    Mass beyond the ends goes to the end knots. The error of the expectation of a function g is at
    most the square of the knots' spacing times |g''|/8.
    """
    slope = np.diff(p.integrated_cdf(knots), axis=1) / np.diff(knots)
    padded = np.concatenate([np.zeros((len(p), 1)), slope, np.ones((len(p), 1))], axis=1)
    return np.maximum(np.diff(padded, axis=1), 0)
