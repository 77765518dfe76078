"""The recalibrator: from held-out pairs (P_i, y_i) to a calibrated distribution for every P.

The paper's estimator: a Laplace kernel on the energy distance between predictive distributions, a
conditional mean embedding with ridge lam * n, each weight vector projected on the simplex, and lam
chosen by cross-validated kernel score. Ours: the ridge is chosen by leave-one-out CRPS unless asked
otherwise, outcomes may be anchored at the prediction, and large sets go through a Nystrom
approximation.
"""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.cluster import kmeans_plusplus
from sklearn.utils.validation import check_is_fitted

from armillary.uncertainty.recalibration import selection
from armillary.uncertainty.recalibration.distributions import (
    LARGEST,
    Floats,
    GaussianMixture,
    Interval,
    Predictive,
    WeightedSamples,
    as_predictive,
    real_numbers,
)
from armillary.uncertainty.recalibration.embedding import (
    Backend,
    laplace_kernel,
    median_heuristic,
    outcome_bandwidth,
    project_on_simplex,
    squared_distances,
)
from armillary.uncertainty.recalibration.energy import (
    Embedded,
    embed,
    energy_distances,
    place_knots,
)

ANCHORS = ("y", "residual")
MINIMUM_ROWS = 20
EXACT_ROWS = 300
EXACT_COMPONENTS = 4
NYSTROEM_ROWS = 4000
SELECTION_ROWS = 2000
DENSE_LIMIT = 20_000
LANDMARKS = 1000
KNOTS = 513
#: A row whose largest kernel value is below this lies far from all calibration rows.
FAR = 0.05
ROWS_AT_ONCE = 512


class DegeneratePredictions(UserWarning):
    """All calibration predictions are the same: there is nothing to condition on."""


class ConstantOutcomes(UserWarning):
    """All calibration outcomes are the same."""


class ExtrapolatedPredictions(UserWarning):
    """Predictions unlike all calibration rows: nothing was learnt about them."""


class CalibrationLeakWarning(UserWarning):
    """Calibration rows seem to have been training rows of the base model."""


@dataclasses.dataclass(frozen=True)
class Outcomes:
    """Calibration outcomes of one anchor, sorted, and how they return to units of y.

    Attributes:
        kind: ``y`` (the outcome itself) or ``residual`` (y - median of P).
        values: (n,) sorted.
        order: (n,) the calibration row of each.
        theta: bandwidth of the outcome kernel.
    """

    kind: str
    values: Floats
    order: NDArray[np.intp]
    theta: float

    @classmethod
    def anchored(cls, kind: str, y: Floats, centre: Floats) -> Outcomes:
        located = y - centre if kind == "residual" else y
        order = np.argsort(located, kind="stable")
        return cls(kind, located[order], order, outcome_bandwidth(located))


class KernelRecalibrator(BaseEstimator):
    """Recalibrate whole predictive distributions from a held-out set.

    Each new prediction P becomes a weighted sample of calibration outcomes, the weights saying
    which calibration predictions were like P. Where the base model is overconfident, skewed or
    bimodal only for some predictions, this repairs those predictions; a remap of the PIT, or one
    pooled set of residuals, cannot.

    Do not use it with rows on which the base model was trained, with fewer than a few hundred
    calibration rows (pooled residuals are then hard to beat), or where predictions are all alike.

    Args:
        anchor: what the weights are put on. ``"y"``: calibration outcomes (the paper).
            ``"residual"``: residuals from the median of P, moved to the median of the new P.
            ``"auto"``: the one of least held-out CRPS.
        kernel: ``"laplace"``, exp(-d/theta) with d the square root of the energy distance.
        lam: ridge > 0 (multiplied by n in the solve), ``"loo"`` (of least leave-one-out CRPS,
            in closed form) or ``"cv"`` (of least kernel score over folds, as in the paper).
        n_knots: knots of the embedding >= 8; None: exact distances; ``"auto"``: exact up to 300
            rows, else 513.
        nystroem: ``"auto"`` (1000 landmarks above 4000 rows), a number of landmarks, or None (dense
            solve; refused above 20 000 rows).
        cv: folds of ``lam="cv"``, >= 2; below 300 rows they are drawn twice.
        random_state: seed of folds and landmarks.
        device: None (numpy) or a torch device such as ``"cuda"`` for the linear algebra.

    Attributes:
        origin_: median of y, subtracted from P and y before all arithmetic; ``knots_`` and
            ``location_`` are relative to it.
        lam_: the ridge in use.
        theta_: bandwidth of the kernel on distributions, in square roots of units of standardised
            y.
        anchor_: the anchor in use.
        weights_support_: (n,) outcomes or residuals that carry the weights, sorted, in units of y.
        rank_: landmarks of the Nystrom approximation, or n.
        selection_: the scores that chose ``lam_`` and ``anchor_``, or None.

    Source: Jung, Kelen, Benczur, "Nonparametric Distribution Regression Re-calibration", ICML 2026.
    Anchors, the embedding by cells, leave-one-out and Nystrom are ours.
    """

    def __init__(
        self,
        anchor: str = "auto",
        kernel: str = "laplace",
        lam: float | str = "loo",
        n_knots: int | str | None = "auto",
        nystroem: int | str | None = "auto",
        cv: int = 5,
        random_state: int | None = None,
        device: str | None = None,
    ) -> None:
        self.anchor = anchor
        self.kernel = kernel
        self.lam = lam
        self.n_knots = n_knots
        self.nystroem = nystroem
        self.cv = cv
        self.random_state = random_state
        self.device = device

    # ---- learning ------------------------------------------------------------------------------

    def fit(
        self,
        P: Any,
        y: ArrayLike,
        train_index: ArrayLike | None = None,
        calibration_index: ArrayLike | None = None,
    ) -> KernelRecalibrator:
        """Learn from calibration pairs.

        Args:
            P: n predictive distributions in any form that `as_predictive` reads.
            y: (n,) outcomes that the base model has not seen.
            train_index: row numbers on which the base model was trained.
            calibration_index: row numbers of the calibration rows, in the same numbering (default
                0..n-1). Rows in both give a `CalibrationLeakWarning` when the base model's error
                on them is less than half of its error on the others.

        Raises:
            ValueError: fewer than 20 rows, NaN or infinity, lengths that differ, a parameter out
                of range, or more than 20 000 rows without Nystrom.
        """
        self._check_parameters()
        y = _outcomes(y)
        p = as_predictive(P, len(y))
        n = len(y)
        if n < MINIMUM_ROWS:
            raise ValueError(
                f"{n} calibration rows: at least {MINIMUM_ROWS} are needed (a few hundred to gain)"
            )
        landmarks = self._landmarks(n)
        _warn_of_leak(p, y, train_index, calibration_index)
        self.n_calibration_ = n
        # All arithmetic is done about the middle of y: a common offset must not take digits.
        self.origin_ = float(np.median(y))
        p, y = p.moved(-self.origin_), y - self.origin_
        self.location_, self.scale_ = float(y.mean()), float(y.std()) or 1.0
        if not np.ptp(y):
            warnings.warn(
                f"y is {self.origin_:g} in every row: there is nothing to learn but that",
                ConstantOutcomes,
                stacklevel=2,
            )
        self.selection_ = None
        self._place(p)
        reference = np.arange(n) if landmarks is None else self._choose_landmarks(landmarks)
        self._take_reference(p, reference)
        self.rank_ = len(reference)
        within = self._squared(self._reference)
        self.theta_ = median_heuristic(within if landmarks is None else self._subset_square(p))
        centre = self._centre(p)
        self._all = {kind: Outcomes.anchored(kind, self._standard(y), centre) for kind in ANCHORS}
        if self.theta_ == 0:
            return self._fit_marginal()
        self._select(p, within if landmarks is None else None)
        self._factorise(within, landmarks is not None)
        return self

    def _check_parameters(self) -> None:
        if self.anchor not in ("auto", *ANCHORS):
            raise ValueError(f"anchor={self.anchor!r}: choose auto, {', '.join(ANCHORS)}")
        if self.kernel != "laplace":
            raise ValueError(f"kernel={self.kernel!r}: the kernel on distributions is 'laplace'")
        if self.lam not in ("cv", "loo") and not (
            isinstance(self.lam, (int, float)) and np.isfinite(self.lam) and self.lam > 0
        ):
            raise ValueError(f"lam={self.lam!r}: give 'cv', 'loo' or a number > 0")
        seed = self.random_state
        if seed is not None and (
            isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0
        ):
            raise ValueError(f"random_state={seed!r}: give a whole number >= 0, or None")
        if self.device is not None:
            _check_device(self.device)
        for name, value, least in (
            ("n_knots", self.n_knots, 8),
            ("nystroem", self.nystroem, 2),
            ("cv", self.cv, 2),
        ):
            if value in ("auto", None) and name != "cv":
                continue
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
                raise ValueError(f"{name}={value!r}: give a whole number >= {least}")

    def _landmarks(self, n: int) -> int | None:
        if self.nystroem == "auto":
            return LANDMARKS if n > NYSTROEM_ROWS else None
        if self.nystroem is None:
            if n > DENSE_LIMIT:
                raise ValueError(
                    f"{n} calibration rows with nystroem=None need two dense matrices of "
                    f"{n * n * 8 / 2**30:.1f} GiB each: pass nystroem='auto' or a number of "
                    "landmarks"
                )
            return None
        return int(self.nystroem) if int(self.nystroem) < n else None

    def _standard(self, y: Floats) -> Floats:
        return (y - self.location_) / self.scale_

    def _centre(self, p: Predictive) -> Floats:
        """(n,) medians of P, in standardised units."""
        return self._standard(p.median())

    def _place(self, p: Predictive) -> None:
        """Decide between exact distances and the embedding, and embed the calibration rows."""
        exact = self.n_knots is None or (
            self.n_knots == "auto"
            and len(p) <= EXACT_ROWS
            and not (isinstance(p, GaussianMixture) and p.mu.shape[1] > EXACT_COMPONENTS)
        )
        self.knots_ = None
        self._embedded = None
        if not exact:
            count = KNOTS if self.n_knots == "auto" else int(self.n_knots)  # pyright: ignore
            self.knots_ = place_knots(p, count)
            if len(self.knots_) < 2:  # one atom everywhere: all predictions are the same
                self.knots_ = np.array([self.knots_[0] - 1, self.knots_[0] + 1])
            self._embedded = _scaled(embed(p, self.knots_), self.scale_)

    def _take_reference(self, p: Predictive, rows: NDArray[np.intp]) -> None:
        if self._embedded is not None:
            self._reference: Embedded | Predictive = self._embedded[rows]
        else:
            self._reference = p[rows]

    def _squared(self, other: Embedded | Predictive) -> Floats:
        """(rank, t) energy distances to the reference rows, in standardised units."""
        backend = Backend(self.device)
        if isinstance(other, Embedded):
            assert isinstance(self._reference, Embedded)
            square = backend.take(squared_distances(self._reference, other, backend))
            if other is self._reference:
                square = (square + square.T) / 2
                np.fill_diagonal(square, 0)
            return square
        assert isinstance(self._reference, Predictive)
        within = other is self._reference
        return energy_distances(self._reference, None if within else other) / self.scale_

    def _choose_landmarks(self, count: int) -> NDArray[np.intp]:
        """Rows drawn by k-means++ on the embedded predictions: far from those drawn before."""
        if self._embedded is None:
            raise ValueError("nystroem needs the embedding: pass n_knots=513 instead of None")
        _, rows = kmeans_plusplus(
            self._embedded.cells, count, random_state=self.random_state, n_local_trials=1
        )
        return np.sort(np.unique(rows))

    def _subset_rows(self, n: int) -> NDArray[np.intp]:
        """At most 2000 rows, on which bandwidth and ridge of a large set are chosen."""
        rng = np.random.default_rng(self.random_state)
        return np.sort(rng.permutation(n)[:SELECTION_ROWS])

    def _subset_square(self, p: Predictive) -> Floats:
        assert self._embedded is not None
        part = self._embedded[self._subset_rows(len(p))]
        backend = Backend(self.device)
        return backend.take(squared_distances(part, part, backend))

    def _select(self, p: Predictive, within: Floats | None) -> None:
        """Choose the ridge and the anchor, unless both are given."""
        anchors = ANCHORS if self.anchor == "auto" else (self.anchor,)
        if isinstance(self.lam, (int, float)) and len(anchors) == 1:
            self.lam_, self.anchor_ = float(self.lam), anchors[0]
            return
        rows = np.arange(len(p)) if within is not None else self._subset_rows(len(p))
        square = within if within is not None else self._subset_square(p)
        backend = Backend(self.device)
        gram = backend.take(laplace_kernel(backend.put(square), self.theta_, backend))
        chosen = selection.select(
            gram,
            {kind: _rows_of(self._all[kind], rows) for kind in anchors},
            lam=self.lam,
            folds=self.cv,
            seed=self.random_state,
            backend=backend,
        )
        self.selection_, self.lam_, self.anchor_ = chosen, chosen.lam, chosen.anchor

    def _factorise(self, within: Floats, landmarks: bool) -> None:
        self._map = None
        if landmarks:
            self._factorise_landmarks(within)
        else:
            self._factor = self._dense_factor(within)
        self._finish()

    def _dense_factor(self, within: Floats) -> Any:
        """Cholesky factor of K + lam n I."""
        backend = Backend(self.device)
        gram = laplace_kernel(backend.put(within), self.theta_, backend)
        return backend.factor(gram + (self.lam_ * len(within)) * backend.put(np.eye(len(within))))

    def _factorise_landmarks(self, within: Floats) -> None:
        """With m landmarks the weights are K_nm (K_mn K_nm + lam n K_mm)^-1 k_m(P)."""
        assert self._embedded is not None
        backend = Backend(self.device)
        gram = laplace_kernel(backend.put(within), self.theta_, backend)
        square = backend.put(self._squared(self._embedded))
        cross = laplace_kernel(square, self.theta_, backend)
        jitter = 1e-10 * len(within) * backend.put(np.eye(len(within)))
        ridge = self.lam_ * self.n_calibration_
        self._factor = backend.factor(cross @ cross.T + ridge * gram + jitter)
        self._map = backend.take(cross.T)[self._all[self.anchor_].order]

    def _finish(self) -> None:
        self._set_outcomes(self._all[self.anchor_])
        del self._all
        self._embedded = None

    def _set_outcomes(self, outcomes: Outcomes) -> None:
        self._outcomes, values = outcomes, outcomes.values
        shift = self.origin_ + self.location_ if self.anchor_ == "y" else 0.0
        self.weights_support_ = shift + self.scale_ * values

    def _fit_marginal(self) -> KernelRecalibrator:
        warnings.warn(
            "all calibration predictions are the same: every row gets the marginal of y",
            DegeneratePredictions,
            stacklevel=3,
        )
        self.lam_, self.anchor_, self._factor, self._map = float("inf"), "y", None, None
        self._finish()
        return self

    # ---- using ---------------------------------------------------------------------------------

    def _kernel(self, p: Predictive) -> Floats:
        """(rank, t) kernel between the reference rows and new predictions."""
        backend = Backend(self.device)
        p = p.moved(-self.origin_)
        if self.knots_ is None:
            other: Embedded | Predictive = p
        else:
            other = _scaled(embed(p, self.knots_), self.scale_)
        return backend.take(laplace_kernel(backend.put(self._squared(other)), self.theta_, backend))

    def _solved(self, p: Predictive) -> tuple[Floats, NDArray[np.bool_]]:
        """((n, t) unprojected weights on the sorted outcomes, (t,) whether a row is far)."""
        backend = Backend(self.device)
        kernel = self._kernel(p)
        solved = backend.take(backend.solve(self._factor, backend.put(kernel)))
        solved = solved[self._outcomes.order] if self._map is None else self._map @ solved
        return solved, kernel.max(axis=0) < FAR

    def _weights(self, p: Predictive) -> tuple[Floats, NDArray[np.bool_]]:
        """((t, n) weights on the sorted outcomes, (t,) whether a row is far from all others)."""
        n = self.n_calibration_
        if self._factor is None:
            return np.full((len(p), n), 1 / n), np.zeros(len(p), dtype=bool)
        backend = Backend(self.device)
        solved, far = self._solved(p)
        return backend.take(project_on_simplex(backend.put(solved), backend)).T, far

    def blocks(self, P: Any) -> Iterator[tuple[WeightedSamples, NDArray[np.bool_]]]:
        """Recalibrate at most 512 rows at a time, so that dense weights never fill the memory.

        Yields:
            The recalibrated distributions of a block, and whether each of its rows is unlike all
            calibration rows (see `extrapolated`).
        """
        check_is_fitted(self, "lam_")
        p = as_predictive(P)
        for start in range(0, len(p), ROWS_AT_ONCE):
            yield self._recalibrate(p[start : start + ROWS_AT_ONCE])

    def _recalibrate(self, p: Predictive) -> tuple[WeightedSamples, NDArray[np.bool_]]:
        weights, far = self._weights(p)
        atoms = self.weights_support_
        if self.anchor_ == "residual":
            atoms = p.median()[:, None] + atoms
        return WeightedSamples(atoms, weights), far

    def predict(self, P: Any) -> WeightedSamples:
        """Recalibrated distributions, one a row of ``P``, as weighted samples in units of y.

        The weights are dense, (t, n): for many rows use `predict_quantiles`, `predict_interval` or
        `crps`, which work in blocks.
        """
        found = list(self.blocks(P))
        parts = [recalibrated for recalibrated, _ in found]
        far = sum(int(flags.sum()) for _, flags in found)
        if far:
            warnings.warn(
                f"{far} of {sum(map(len, parts))} predictions are unlike all calibration rows: "
                "see extrapolated(P)",
                ExtrapolatedPredictions,
                stacklevel=2,
            )
        weights = np.concatenate([part._row_weights() for part in parts])
        shared = parts[0].shared
        values = parts[0].values if shared else np.concatenate([part.values for part in parts])
        return WeightedSamples(values, weights)

    def predict_quantiles(self, P: Any, q: ArrayLike) -> Floats:
        """(t, L) quantiles at levels ``q`` in (0, 1); they never cross."""
        return np.concatenate([part.quantile(q) for part, _ in self.blocks(P)])

    def predict_mean(self, P: Any) -> Floats:
        """(t,) means of the recalibrated distributions."""
        return np.concatenate([part.mean() for part, _ in self.blocks(P)])

    def predict_interval(self, P: Any, coverage: float = 0.9) -> Interval:
        """Central intervals of a nominal coverage in (0, 1)."""
        ends = [part.interval(coverage) for part, _ in self.blocks(P)]
        return Interval(
            np.concatenate([end.lower for end in ends]), np.concatenate([end.upper for end in ends])
        )

    def crps(self, P: Any, y: ArrayLike) -> Floats:
        """(t,) CRPS of the recalibrated distributions, in units of y; lower is better."""
        y = _outcomes(y)
        p = as_predictive(P, len(y))
        found, at = [], 0
        for part, _ in self.blocks(p):
            found.append(part.crps(y[at : at + len(part)]))
            at += len(part)
        return np.concatenate(found)

    def extrapolated(self, P: Any) -> NDArray[np.bool_]:
        """(t,) rows unlike all calibration rows (largest kernel value below 0.05)."""
        return np.concatenate([far for _, far in self.blocks(P)])

    # ---- files ---------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the fitted model as ``.npz`` (arrays and numbers, no pickle), whole or not."""
        from armillary.uncertainty.recalibration import storage

        return storage.save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> KernelRecalibrator:
        """Read a model that `save` wrote.

        Raises:
            FileNotFoundError: no such file.
            ValueError: the file is not a recalibration model.
        """
        from armillary.uncertainty.recalibration import storage

        return storage.load(path)


def _scaled(embedded: Embedded, scale: float) -> Embedded:
    """Energy distances are in units of y: standardise them."""
    return Embedded(embedded.cells / np.sqrt(scale), embedded.low / scale, embedded.high / scale)


def _rows_of(outcomes: Outcomes, rows: NDArray[np.intp]) -> selection.Target:
    """The outcomes of some rows, in the rows' order."""
    values = np.empty(len(outcomes.values))
    values[outcomes.order] = outcomes.values
    return selection.Target(outcomes.kind, values[rows], outcomes.theta)


def _check_device(device: str) -> None:
    """Refuse a device that torch does not know or does not have."""
    torch = Backend(device).torch
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        text = str(error).splitlines()[0]
        raise ValueError(
            f"device={device!r} cannot be used here ({text}): give None, 'cpu', or a device that "
            "torch has"
        ) from None


def _outcomes(y: ArrayLike) -> Floats:
    y = real_numbers(y, "y")
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise ValueError(f"y has shape {y.shape}: give (n,) outcomes")
    bad = ~np.isfinite(y)
    if bad.any():
        raise ValueError(
            f"y holds NaN or infinity in {int(bad.sum())} of {len(y)} rows, first in row "
            f"{int(np.argmax(bad))}: drop or mend them"
        )
    if np.abs(y).max(initial=0) > LARGEST:
        raise ValueError(
            f"y holds {np.abs(y).max():.3g}: numbers up to {LARGEST:g} are accepted; "
            "rescale y and P"
        )
    return y


def _warn_of_leak(
    p: Predictive, y: Floats, train_index: ArrayLike | None, calibration_index: ArrayLike | None
) -> None:
    if train_index is None:
        return
    index = np.arange(len(y)) if calibration_index is None else np.asarray(calibration_index)
    seen = np.isin(index, np.asarray(train_index))
    if not seen.any():
        return
    error = np.abs(y - p.median())
    unseen = error[~seen].mean() if (~seen).any() else np.inf
    if error[seen].mean() < 0.5 * unseen:
        warnings.warn(
            f"{int(seen.sum())} of {len(y)} calibration rows were training rows and their error "
            f"is {error[seen].mean():.3g} against {unseen:.3g} on the others: calibrate on "
            "held-out or cross-fitted predictions",
            CalibrationLeakWarning,
            stacklevel=3,
        )
