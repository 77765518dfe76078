"""Choosing the ridge and the anchor from the calibration rows alone.

The ridge minimises the mean kernel score 1 + w'Lw - 2 w'l(., y) of held-out rows with projected
weights w. Each fold's Gram matrix is decomposed once, then a ridge costs one matrix product.
Leave-one-out needs no refit: with A = (K + lam n I)^-1, the weights for row i learnt without it are
-A[:, i] / A[i, i] off the diagonal.

The anchor minimises the held-out CRPS in units of y, so that all anchors stand on one scale.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from armillary.uncertainty.recalibration.distributions import Floats
from armillary.uncertainty.recalibration.embedding import (
    Backend,
    laplace_self_term,
    project_on_simplex,
)

#: log10 of the ridges that are tried before the search around the best.
GRID = np.linspace(-7, 1, 13)
REPEAT_BELOW = 300
#: Held-out rows over all folds for sets that are not small.
HELD_ROWS = 1000


@dataclasses.dataclass(frozen=True)
class Target:
    """Outcomes of one anchor: (n,) values in the rows' order, and the outcome bandwidth."""

    kind: str
    values: Floats
    theta: float


@dataclasses.dataclass(frozen=True)
class Selection:
    """What was chosen and on which scores.

    Attributes:
        lam: the ridge.
        anchor: the anchor.
        crps: held-out CRPS of each anchor at its own ridge, in standard deviations of y.
        scores: held-out kernel score of each anchor at each ridge of the grid.
    """

    lam: float
    anchor: str
    crps: Mapping[str, float]
    scores: Mapping[str, tuple[float, ...]]


@dataclasses.dataclass(frozen=True)
class Split:
    """Weights for held-out rows as a function of the ridge."""

    train: NDArray[np.intp]
    held: NDArray[np.intp]
    weights: Callable[[float], Floats]  # lam -> (train, held) projected weights


def fold_splits(gram: Floats, folds: int, seed: int | None, backend: Backend) -> Iterator[Split]:
    """Folds of the rows, drawn twice for small sets; at most ~1000 rows are held out in all."""
    n = len(gram)
    rng = np.random.default_rng(seed)
    for _ in range(2 if n < REPEAT_BELOW else 1):
        for held in np.array_split(rng.permutation(n), folds):
            train = np.setdiff1d(np.arange(n), held)
            yield _fold(gram, train, np.sort(held)[: max(20, HELD_ROWS // folds)], backend)


def _fold(gram: Floats, train: NDArray[np.intp], held: NDArray[np.intp], backend: Backend) -> Split:
    values, vectors = backend.eigh(backend.put(gram[np.ix_(train, train)]))
    rotated = vectors.T @ backend.put(gram[np.ix_(train, held)])
    count = len(train)

    def weights(lam: float) -> Floats:
        solved = vectors @ (rotated / (values + lam * count)[:, None])
        return backend.take(project_on_simplex(solved, backend))

    return Split(train, held, weights)


def loo_split(gram: Floats, seed: int | None, backend: Backend) -> Split:
    """Rows held out of the fit on all others; the weight of a row on itself is zero.

    Of more than 1000 rows a random 1000 are held out, each alone.
    """
    n = len(gram)
    values, vectors = backend.eigh(backend.put(gram))
    rows = np.arange(n)
    held = np.sort(np.random.default_rng(seed).permutation(n)[:HELD_ROWS])
    columns = np.arange(len(held))
    rotated = vectors[held].T

    def weights(lam: float) -> Floats:
        inverse = backend.take(vectors @ (rotated / (values + lam * n)[:, None]))
        solved = -inverse / inverse[held, columns]
        # Whatever lies 1 below a column's largest entry has weight zero.
        solved[held, columns] = -np.inf
        solved[held, columns] = solved.max(axis=0) - 2
        return backend.take(project_on_simplex(backend.put(solved), backend))

    return Split(rows, held, weights)


def kernel_score(split: Split, weights: Floats, target: Target) -> float:
    """Mean over held-out rows of 1 + w'Lw - 2 w'l(., y): the squared MMD to a point mass at y."""
    train, held = target.values[split.train], target.values[split.held]
    order = np.argsort(train, kind="stable")
    within = laplace_self_term(weights[order], train[order], target.theta)
    across = np.exp(-np.abs(train[:, None] - held) / target.theta)
    return float(np.mean(1 + within - 2 * np.einsum("nt,nt->t", weights, across)))


def held_out_crps(split: Split, weights: Floats, target: Target, scale: Floats) -> float:
    """Mean CRPS over held-out rows, in standard deviations of y."""
    train, held = target.values[split.train], target.values[split.held]
    order = np.argsort(train, kind="stable")
    w, atoms = weights[order], train[order]
    to_outcome = np.einsum("nt,nt->t", w, np.abs(atoms[:, None] - held))
    mass = np.cumsum(w, axis=0)[:-1]
    spread = np.diff(atoms) @ (mass * (1 - mass))
    stretch = scale[split.held] if target.kind == "scaled" else 1.0
    return float(np.mean((to_outcome - spread) * stretch))


def select(
    gram: Floats,
    targets: Mapping[str, Target],
    scale: Floats,
    *,
    lam: float | str,
    folds: int,
    seed: int | None,
    backend: Backend,
) -> Selection:
    """Choose ridge and anchor.

    Args:
        gram: (n, n) kernel between calibration predictions.
        targets: the anchors to choose from.
        scale: (n,) spreads of the predictions, standardised.
        lam: ``"cv"``, ``"loo"``, or a number that is kept (its anchors are compared by folds).
        folds: folds of ``"cv"``.
        seed: draws the folds or the rows held out.
        backend: where the linear algebra runs.
    """
    if lam == "loo":
        splits = [loo_split(gram, seed, backend)]
    else:
        splits = list(fold_splits(gram, folds, seed, backend))
    grid = GRID if isinstance(lam, str) else np.array([np.log10(lam)])
    scores: dict[str, list[float]] = {kind: [] for kind in targets}
    crps: dict[str, list[float]] = {kind: [] for kind in targets}
    for exponent in grid:
        weighted = [(split, split.weights(10**exponent)) for split in splits]
        for kind, target in targets.items():
            scores[kind].append(float(np.mean([kernel_score(s, w, target) for s, w in weighted])))
            crps[kind].append(
                float(np.mean([held_out_crps(s, w, target, scale) for s, w in weighted]))
            )
    at = {kind: int(np.argmin(scores[kind])) for kind in targets}
    best = {kind: crps[kind][at[kind]] for kind in targets}
    anchor = min(best, key=lambda kind: best[kind])
    exponent = float(grid[at[anchor]])
    if isinstance(lam, str):
        exponent = _refine(exponent, splits, targets[anchor])
    return Selection(
        10**exponent,
        anchor,
        {kind: float(value) for kind, value in best.items()},
        {kind: tuple(float(s) for s in values) for kind, values in scores.items()},
    )


def _refine(exponent: float, splits: list[Split], target: Target) -> float:
    """Bounded Brent search within one step of the grid."""
    step = GRID[1] - GRID[0]

    def score(candidate: float) -> float:
        weighted = [(split, split.weights(10**candidate)) for split in splits]
        return float(np.mean([kernel_score(s, w, target) for s, w in weighted]))

    found = optimize.minimize_scalar(
        score,
        bounds=(exponent - step, exponent + step),
        method="bounded",
        options={"maxiter": 8, "xatol": 0.05},
    )
    return float(found.x) if found.fun <= score(exponent) else exponent
