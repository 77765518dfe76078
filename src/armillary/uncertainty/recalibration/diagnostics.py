"""Is a set of predictions calibrated? Tests and figures that read (P_i, y_i) only.

- `pit`: probability integral transforms, uniform if the predictions are calibrated on average.
- `skce`: the squared kernel calibration error (Widmann, Lindsten, Zachariah 2021): zero if and only
  if y given P is distributed as P says, with a test by wild bootstrap.
- `dcor`: bias-corrected distance correlation (Szekely, Rizzo 2013), for "does the PIT still depend
  on the width of the interval?".
- `expected_coverage_table`, `report`: figures for people.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from armillary.uncertainty.recalibration.distributions import (
    Floats,
    Predictive,
    WeightedSamples,
    as_predictive,
)
from armillary.uncertainty.recalibration.embedding import (
    Backend,
    median_heuristic,
    outcome_bandwidth,
    squared_distances,
)
from armillary.uncertainty.recalibration.energy import bin_weights, embed, place_knots

#: Above this many rows the quadratic diagnostics use a random part of them.
QUADRATIC_ROWS = 4000


def pit(P: Any, y: ArrayLike, seed: int | np.random.Generator | None = 0) -> Floats:
    """(n,) probability integral transforms F_i(y_i).

    Where F_i jumps at y_i the value is drawn uniformly from the jump, so that the PIT of calibrated
    discrete predictions is uniform too.

    Args:
        P: n predictive distributions in any accepted form.
        y: (n,) outcomes.
        seed: for the draws at jumps.
    """
    y = np.asarray(y, dtype=float)
    below, upto = as_predictive(P, len(y)).cdf_bounds(y)
    return below + np.random.default_rng(seed).random(len(y)) * (upto - below)


@dataclasses.dataclass(frozen=True)
class CalibrationTest:
    """An SKCE and its test.

    Attributes:
        statistic: the unbiased estimate; it is near zero, of either sign, under calibration.
        p_value: share of wild-bootstrap statistics that reach it.
    """

    statistic: float
    p_value: float


def skce(P: Any, y: ArrayLike, n_boot: int = 400, seed: int = 0) -> CalibrationTest:
    """Squared kernel calibration error, with a wild-bootstrap test of calibration.

    The mean over i != j of

        k(P_i, P_j) [l(y_i, y_j) - E l(y_i, Z_j) - E l(Z_i, y_j) + E l(Z_i, Z_j)],   Z_i ~ P_i,

    with k = exp(-e/theta_e), e the energy distance (not the kernel of the estimator, so that the
    judge is not the method's own), and l(y, y') = exp(-|y - y'|/theta_y); both bandwidths are
    medians. Expectations are exact for functions that are linear between 513 knots. Under the null
    each summand has mean zero given either row, so that signs drawn by row imitate the statistic.

    Args:
        P: n predictive distributions in any accepted form.
        y: (n,) outcomes, n >= 3; of more than 4000 rows a random part is used.
        n_boot: bootstrap statistics.
        seed: of the signs (and of the part).
    """
    y = np.asarray(y, dtype=float)
    p = as_predictive(P, len(y))
    if len(y) < 3:
        raise ValueError(f"{len(y)} rows: the test needs at least 3")
    rng = np.random.default_rng(seed)
    if len(y) > QUADRATIC_ROWS:
        rows = np.sort(rng.permutation(len(y))[:QUADRATIC_ROWS])
        p, y = p[rows], y[rows]
    h = skce_terms(p, y)
    n = len(y)
    statistic = h.sum() / (n * (n - 1))
    signs = rng.choice([-1.0, 1.0], size=(n_boot, n))
    null = np.einsum("bn,bn->b", signs @ h, signs) / (n * (n - 1))
    return CalibrationTest(float(statistic), float((1 + (null >= statistic).sum()) / (n_boot + 1)))


def skce_terms(p: Predictive, y: Floats) -> Floats:
    """(n, n) summands of the SKCE, zero on the diagonal."""
    theta_y = outcome_bandwidth(y)
    square = _energies(p)
    bandwidth = median_heuristic(square) ** 2 or 1.0
    weights, knots = _binned(p, y)
    # Signed weights of (point mass at y) - P on common points: the bracket is a quadratic form.
    points = np.concatenate([knots, y])
    signed = np.concatenate([-weights, np.eye(len(y))], axis=1)
    outcome = np.exp(-np.abs(np.subtract.outer(points, points)) / theta_y)
    terms = np.exp(-square / bandwidth) * (signed @ outcome @ signed.T)
    np.fill_diagonal(terms, 0)
    return terms


def _energies(p: Predictive) -> Floats:
    embedded = embed(p, _spread_knots(p, 513))
    square = squared_distances(embedded, embedded, Backend())
    np.fill_diagonal(square, 0)
    return square


def _spread_knots(p: Predictive, count: int) -> Floats:
    knots = place_knots(p, count)
    return knots if len(knots) > 1 else np.array([knots[0] - 1, knots[0] + 1])


def _binned(p: Predictive, y: Floats) -> tuple[Floats, Floats]:
    """((n, K) weights, (K,) knots): the predictions on common points."""
    if isinstance(p, WeightedSamples) and p.shared and len(p.values) <= 1000:
        return p._row_weights(), p.values
    knots = _spread_knots(p, 513)
    return bin_weights(p, knots), knots


def dcor(x: ArrayLike, y: ArrayLike) -> float:
    """Bias-corrected distance correlation of two samples of numbers.

    Args:
        x: (n,) or (n, d) numbers, n >= 4.
        y: (n,) or (n, d') numbers.

    Returns:
        At most 1; zero on average (and then as often negative) if x and y are independent. It
        estimates the square of the distance correlation, as its authors define it.
    """
    a, b = (_u_centred(np.asarray(v, dtype=float)) for v in (x, y))
    if a.shape != b.shape:
        raise ValueError(f"x has {len(a)} rows and y has {len(b)}")
    scale = np.sqrt((a * a).sum() * (b * b).sum())
    return float((a * b).sum() / scale) if scale > 0 else 0.0


def _u_centred(x: Floats) -> Floats:
    """(n, n) U-centred distances: row and column sums without the diagonal are zero."""
    x = x[:, None] if x.ndim == 1 else x
    n = len(x)
    if n < 4:
        raise ValueError(f"{n} rows: distance correlation needs at least 4")
    distances = np.sqrt(np.maximum(((x[:, None] - x[None]) ** 2).sum(axis=-1), 0))
    rows = distances.sum(axis=1)
    centred = distances - (rows[:, None] + rows[None]) / (n - 2)
    centred += rows.sum() / ((n - 1) * (n - 2))
    np.fill_diagonal(centred, 0)
    return centred


def pit_distance(values: Floats) -> float:
    """Kolmogorov-Smirnov distance of PIT values from uniform, in [0, 1]."""
    return float(stats.kstest(values, "uniform").statistic)
