"""Choosing the ridge and the anchor from the calibration rows alone.

Each split's Gram matrix is decomposed once, then a ridge costs one matrix product. Leave-one-out
needs no refit: with A = (K + lam n I)^-1, the weights for row i learnt without it are
-A[:, i] / A[i, i] off the diagonal. Weights are projected before they are scored.

By folds the ridge minimises the mean kernel score 1 + w'Lw - 2 w'l(., y) of held-out rows, as in
the paper; leave-one-out minimises their CRPS. The anchor always minimises the held-out CRPS, which
is in units of y for all of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

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
        scores: what the ridge minimised, for each anchor at each ridge of the grid: held-out CRPS
            (leave-one-out) or kernel score (folds).
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


@dataclasses.dataclass(frozen=True)
class Scorer:
    """Scores of a split's weights for one target; what does not depend on the ridge is kept."""

    target: Target
    order: NDArray[np.intp]
    atoms: Floats
    gaps: Floats  # (train, held) |atom - outcome|
    alike: Floats  # (train, held) outcome kernel

    @classmethod
    def of(cls, split: Split, target: Target) -> Scorer:
        """Prepare the scores of one split.

        Args:
            split: which rows train and which are held out.
            target: the outcomes of an anchor.
        """
        train, held = target.values[split.train], target.values[split.held]
        order = np.argsort(train, kind="stable")
        gaps = np.abs(train[order][:, None] - held)
        return cls(target, order, train[order], gaps, np.exp(-gaps / target.theta))

    def kernel_score(self, weights: Floats) -> float:
        """Mean of 1 + w'Lw - 2 w'l(., y): the squared MMD to a point mass at y."""
        w = weights[self.order]
        within = laplace_self_term(w, self.atoms, self.target.theta)
        return float(np.mean(1 + within - 2 * np.einsum("nt,nt->t", w, self.alike)))

    def crps(self, weights: Floats) -> float:
        """Mean CRPS of the held-out rows, in standard deviations of y."""
        w = weights[self.order]
        mass = np.cumsum(w, axis=0)[:-1]
        spread = np.diff(self.atoms) @ (mass * (1 - mass))
        to_outcome = np.einsum("nt,nt->t", w, self.gaps)
        return float(np.mean(to_outcome - spread))


def select(
    gram: Floats,
    targets: Mapping[str, Target],
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
        lam: ``"cv"``, ``"loo"``, or a number that is kept (its anchors are compared by folds).
        folds: folds of ``"cv"``.
        seed: draws the folds or the rows held out.
        backend: where the linear algebra runs.
    """
    by_crps = lam == "loo"
    if by_crps:
        splits = [loo_split(gram, seed, backend)]
    else:
        splits = list(fold_splits(gram, folds, seed, backend))
    grid = GRID if isinstance(lam, str) else np.array([np.log10(lam)])
    scorers = {
        kind: [Scorer.of(split, target) for split in splits] for kind, target in targets.items()
    }
    scores: dict[str, list[float]] = {kind: [] for kind in targets}
    crps: dict[str, list[float]] = {kind: [] for kind in targets}
    for exponent in grid:
        weights = [split.weights(10**exponent) for split in splits]
        for kind, found in scorers.items():
            scores[kind].append(_mean_score(found, weights, by_crps))
            crps[kind].append(_mean_score(found, weights, True))
    at = {kind: int(np.argmin(scores[kind])) for kind in targets}
    best = {kind: crps[kind][at[kind]] for kind in targets}
    anchor = min(best, key=lambda kind: best[kind])
    exponent = float(grid[at[anchor]])
    if isinstance(lam, str):
        exponent = _refine(exponent, splits, scorers[anchor], by_crps)
    return Selection(
        10**exponent, anchor, best, {kind: tuple(values) for kind, values in scores.items()}
    )


def _mean_score(scorers: Sequence[Scorer], weights: Sequence[Floats], by_crps: bool) -> float:
    pairs = zip(scorers, weights, strict=True)
    return float(np.mean([s.crps(w) if by_crps else s.kernel_score(w) for s, w in pairs]))


def _refine(
    exponent: float, splits: Sequence[Split], scorers: Sequence[Scorer], by_crps: bool
) -> float:
    """Bounded Brent search within one step of the grid."""
    step = GRID[1] - GRID[0]

    def score(candidate: float) -> float:
        return _mean_score(scorers, [split.weights(10**candidate) for split in splits], by_crps)

    found = optimize.minimize_scalar(
        score,
        bounds=(exponent - step, exponent + step),
        method="bounded",
        options={"maxiter": 8, "xatol": 0.05},
    )
    return float(found.x) if found.fun <= score(exponent) else exponent
