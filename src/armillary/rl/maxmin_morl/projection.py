"""Where dual variables live: weights w in the simplex, prices u >= 0; projections and steps."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import nnls

if TYPE_CHECKING:
    from jaxtyping import Float


def project_simplex(v: Float[np.ndarray, " K"]) -> Float[np.ndarray, " K"]:
    """The nearest point of the probability simplex, exactly, by sorting (Held et al., 1974)."""
    v = np.asarray(v, dtype=float)
    descending = np.sort(v)[::-1]
    excess = np.cumsum(descending) - 1.0
    count = np.arange(1, len(v) + 1)
    last = np.nonzero(descending - excess / count > 0)[0][-1]
    return np.maximum(v - excess[last] / count[last], 0.0)


def project_dual(
    x: Float[np.ndarray, " K+L"], objectives: int, u_max: float = math.inf
) -> Float[np.ndarray, " K+L"]:
    """(w, u): w on the simplex, u in [0, u_max]."""
    return np.concatenate([project_simplex(x[:objectives]), np.clip(x[objectives:], 0.0, u_max)])


def inverse_sqrt(eta: float, t: float) -> float:
    """The step eta / sqrt(t), t = 1, 2, ..."""
    return eta / math.sqrt(max(t, 1))


def nearest_in_polyhedron(
    x: Float[np.ndarray, " n"], G: Float[np.ndarray, "m n"], h: Float[np.ndarray, " m"]
) -> Float[np.ndarray, " n"] | None:
    """The point nearest to x with G y >= h, or None where there is none.

    Least-distance programming by non-negative least squares (Lawson and Hanson, chapter 23).
    """
    shifted = h - G @ x
    if (shifted <= 0).all():
        return np.array(x)
    E = np.concatenate([G.T, shifted[None]])
    f = np.zeros(len(x) + 1)
    f[-1] = 1.0
    try:
        z, distance = nnls(E, f, maxiter=50 * E.shape[1])
    except RuntimeError:
        return None
    if distance < 1e-12:
        return None
    residual = E @ z - f
    return x - residual[:-1] / residual[-1]
