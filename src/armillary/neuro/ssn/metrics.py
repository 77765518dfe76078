"""How sparse, how costly and how alike: figures of a set of codes.

All of them but `energy` are ratios inside one item's code: they do not change if its rates are
multiplied by a constant, and so see no contrast where r = k (g c [F x - b]_+)^n.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from jaxtyping import Float64

Floats = NDArray[np.float64]


def _codes(rates: ArrayLike) -> Floats:
    codes = np.asarray(rates, dtype=np.float64)
    if codes.ndim != 2:
        raise ValueError(f"rates has the shape {codes.shape}, expected (items, units)")
    return codes


def active_fraction(rates: ArrayLike, relative: float = 1e-3) -> Float64[np.ndarray, " items"]:
    """The share of units above ``relative`` times the item's largest rate; 0 for silent items."""
    codes = _codes(rates)
    top = codes.max(axis=1, keepdims=True)
    return ((codes > relative * top) & (codes > 0)).mean(axis=1)


def treves_rolls(rates: ArrayLike) -> Float64[np.ndarray, " items"]:
    """Population sparseness 1 - <r>^2 / <r^2>: 0 if all units fire alike, near 1 if one does.

    One minus it is the participation ratio (sum r)^2 / (N sum r^2). Silent items give 1.
    """
    codes = _codes(rates)
    square = (codes**2).mean(axis=1)
    return 1 - codes.mean(axis=1) ** 2 / np.where(square > 0, square, 1)


def energy(rates: ArrayLike) -> Float64[np.ndarray, " items"]:
    """The sum of rates, in Hz: spikes a second that the code costs."""
    return _codes(rates).sum(axis=1)


def code_kurtosis(rates: ArrayLike) -> float:
    """Mean excess kurtosis of the units' activities over items; silent units are left out."""
    codes = _codes(rates)
    z = codes - codes.mean(axis=0)
    variance = (z**2).mean(axis=0)
    alive = variance > 0
    if not alive.any():
        return 0.0
    return float(((z**4).mean(axis=0)[alive] / variance[alive] ** 2).mean() - 3)


def rate_variation(rates: ArrayLike) -> float:
    """Coefficient of variation over units of their mean rates: 0 if all work alike."""
    means = _codes(rates).mean(axis=0)
    return float(means.std() / means.mean()) if means.mean() > 0 else 0.0


def field_similarity(fields: ArrayLike) -> float:
    """Median over units of the largest |cosine| with another unit's field: 1 for duplicates."""
    f = _codes(fields)
    f = f / np.maximum(np.linalg.norm(f, axis=1, keepdims=True), 1e-12)
    cosines = np.abs(f @ f.T)
    np.fill_diagonal(cosines, 0)
    return float(np.median(cosines.max(axis=1)))
