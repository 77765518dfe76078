"""What coding gives and what it warns of: codes with their flags, and which patch ran away."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from armillary.neuro.ssn.dynamics import SSNDynamics, UnstableNetwork

if TYPE_CHECKING:
    from jaxtyping import Bool, Float


class ContrastOutsideTraining(UserWarning):
    """Contrasts were asked for that the network did not see while it learned."""


class UnconvergedRates(UserWarning):
    """Some patches' rates had not settled when their time was over."""


class Encoding(NamedTuple):
    """Codes with what is to be known of each.

    Attributes:
        rates: (n, E) rates of the excitatory units in Hz.
        contrast: (n,) the contrast that each patch entered with.
        converged: (n,) whether its rates settled.
        residual: (n,) ||phi(u) - r|| / ||r|| over all units.
        oscillating: (n,) whether its rates moved in a cycle instead.
        blank: (n,) constant patches: no direction to code, all rates zero.
    """

    rates: Float[NDArray, "n E"]
    contrast: Float[NDArray, " n"]
    converged: Bool[NDArray, " n"]
    residual: Float[NDArray, " n"]
    oscillating: Bool[NDArray, " n"]
    blank: Bool[NDArray, " n"]


def first_runaway(dynamics: SSNDynamics, drive: torch.Tensor) -> int:
    """The first item whose rates run away; some item's do. Items do not see each other."""
    calm, wild = 0, len(drive)  # so many from the start are calm; so many are not
    while wild - calm > 1:
        middle = (calm + wild) // 2
        try:
            dynamics.fixed_point(drive[calm:middle])
            calm = middle
        except UnstableNetwork:
            wild = middle
    return wild - 1


def refuse_non_finite(X: ArrayLike) -> None:
    """Say where a table of numbers is not finite; what is no such table is told by scikit-learn."""
    if isinstance(X, np.ndarray) and X.ndim == 2 and np.issubdtype(X.dtype, np.floating):
        bad = np.argwhere(~np.isfinite(X))
        if len(bad):
            row, column = bad[0]
            raise ValueError(
                f"X[{row}, {column}] is {X[row, column]} (NaN and infinity are refused; "
                f"{len(bad)} numbers are): leave those patches out"
            )
