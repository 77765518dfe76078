"""The conditional mean embedding: kernels, the regularised solve, and weights on the simplex.

Legend of shapes: n calibration rows, t rows to be recalibrated, K embedding coordinates.

Everything here runs on numpy arrays or, when a device is named, on torch tensors: the same
expressions, with the few functions whose names differ gathered in `Backend`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from armillary.errors import require
from armillary.uncertainty.recalibration.distributions import Floats
from armillary.uncertainty.recalibration.energy import Embedded

#: Columns that are projected at once: their sort stays in the cache.
PROJECTION_COLUMNS = 512
#: Outcomes whose pairwise gaps are enough for a median.
BANDWIDTH_ROWS = 2000


@dataclasses.dataclass(frozen=True)
class Backend:
    """Where the linear algebra runs: numpy (``device=None``) or torch on a device, in float64."""

    device: str | None = None

    @property
    def torch(self) -> Any:
        return require("torch", what="recalibration on a device", extra="uncertainty-peers")

    def put(self, array: NDArray) -> Any:
        if self.device is None:
            return np.asarray(array, dtype=float)
        return self.torch.as_tensor(np.array(array, dtype=float), device=self.device)

    def take(self, array: Any) -> Floats:
        return array if self.device is None else array.cpu().numpy()

    def sort_descending(self, array: Any) -> Any:
        """Columns sorted from the largest down."""
        if self.device is None:
            return -np.sort(-array, axis=0)
        return self.torch.sort(array, dim=0, descending=True).values

    def running_sum(self, array: Any) -> Any:
        return np.cumsum(array, axis=0) if self.device is None else self.torch.cumsum(array, 0)

    def positive(self, array: Any) -> Any:
        """max(array, 0)."""
        return np.maximum(array, 0) if self.device is None else array.clamp(min=0)

    def exp(self, array: Any) -> Any:
        return np.exp(array) if self.device is None else self.torch.exp(array)

    def pick_rows(self, array: Any, rows: Any) -> Any:
        """(t,) element ``rows[j]`` of each column j."""
        if self.device is None:
            return np.take_along_axis(array, rows[None], axis=0)[0]
        return self.torch.gather(array, 0, rows[None])[0]

    def eigh(self, matrix: Any) -> tuple[Any, Any]:
        if self.device is None:
            return linalg.eigh(matrix, check_finite=False, driver="evd")
        values, vectors = self.torch.linalg.eigh(matrix)
        return values, vectors

    def factor(self, matrix: Any) -> Any:
        """A Cholesky factor, to be given to `solve`."""
        if self.device is None:
            return linalg.cho_factor(matrix, lower=True, check_finite=False)
        return self.torch.linalg.cholesky(matrix)

    def solve(self, factor: Any, right: Any) -> Any:
        if self.device is None:
            return linalg.cho_solve(factor, right, check_finite=False)
        return self.torch.cholesky_solve(right, factor)


def squared_distances(a: Embedded, b: Embedded, backend: Backend) -> Any:
    """(n, t) squared distances between embedded distributions, >= 0: one matrix product."""
    x, y = backend.put(a.cells), backend.put(b.cells)
    square = (x * x).sum(1)[:, None] + (y * y).sum(1)[None, :] - 2 * (x @ y.T)
    square = backend.positive(square)
    for left, right in ((a.low, b.low), (a.high, b.high)):
        if left.any() or right.any():
            square = square + abs(backend.put(left)[:, None] - backend.put(right)[None, :])
    return square


def laplace_kernel(square: Any, theta: float, backend: Backend) -> Any:
    """exp(-sqrt(square) / theta)."""
    return backend.exp(-(square**0.5) / theta)


def project_on_simplex(columns: Any, backend: Backend) -> Any:
    """The nearest point of the probability simplex to each column.

    With u the sorted column and r the largest index where u_r > (u_1 + … + u_r - 1)/r =: tau, the
    projection is max(v - tau, 0).

    Args:
        columns: (n, t) finite numbers.

    Returns:
        (n, t) weights >= 0 whose columns sum to 1.
    """
    n, t = columns.shape
    pieces = []
    counts = backend.put(np.arange(1, n + 1))[:, None]
    for start in range(0, t, PROJECTION_COLUMNS):
        part = columns[:, start : start + PROJECTION_COLUMNS]
        ordered = backend.sort_descending(part)
        tau = (backend.running_sum(ordered) - 1) / counts
        last = (ordered > tau).sum(0) - 1
        pieces.append(backend.positive(part - backend.pick_rows(tau, last)[None]))
    if len(pieces) == 1:
        return pieces[0]
    return np.concatenate(pieces, 1) if backend.device is None else backend.torch.cat(pieces, 1)


def median_heuristic(square: Floats) -> float:
    """Median of the non-zero distances between rows i < j; 0 if all rows are the same.

    Distances below 1e-7 of the largest are the same row up to rounding.
    """
    distances = np.sqrt(square[np.triu_indices(len(square), 1)])
    kept = distances[distances > 1e-7 * distances.max(initial=0)]
    return float(np.median(kept)) if len(kept) else 0.0


def outcome_bandwidth(outcomes: Floats) -> float:
    """Median of |y_i - y_j| over i < j, of the non-zero ones if half of the pairs are ties.

    Of more than 2000 outcomes, 2000 evenly spaced order statistics stand for all.
    """
    if len(outcomes) > BANDWIDTH_ROWS:
        at = np.linspace(0, len(outcomes) - 1, BANDWIDTH_ROWS).round().astype(int)
        outcomes = np.sort(outcomes)[at]
    gaps = np.abs(np.subtract.outer(outcomes, outcomes))[np.triu_indices(len(outcomes), 1)]
    median = float(np.median(gaps))
    if median > 0:
        return median
    kept = gaps[gaps > 0]
    return float(np.median(kept)) if len(kept) else 1.0


def laplace_self_term(weights: Floats, outcomes: Floats, theta: float) -> Floats:
    """(t,) w' L w with L = exp(-|y_i - y_j|/theta), in O(n) a column.

    Along sorted outcomes the sum over j < i of w_j exp(-(y_i - y_j)/theta) decays by one factor a
    step.

    Args:
        weights: (n, t).
        outcomes: (n,) sorted.
        theta: bandwidth, > 0.
    """
    decay = np.exp(-np.diff(outcomes, prepend=outcomes[0]) / theta)
    behind = np.zeros(weights.shape[1])
    total = np.zeros(weights.shape[1])
    for i, w in enumerate(weights):
        behind *= decay[i]
        total += w * (w + 2 * behind)
        behind += w
    return total
