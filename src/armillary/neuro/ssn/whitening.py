"""Patches to directions and contrasts: their mean off, whitened, split into direction and norm.

Everything here is linear in the patch: half the contrast gives half the whitened vector.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

#: Principal components are kept whose variance is at least this share of the largest one's.
LEAST_VARIANCE = 0.01


class Directions(NamedTuple):
    """Whitened patches.

    Attributes:
        x: (n, D) of unit norm; zero for blank patches.
        norm: (n,) whitened norms.
        blank: (n,) whether the patch is constant.
    """

    x: Float[NDArray, "n D"]
    norm: Float[NDArray, " n"]
    blank: Bool[NDArray, " n"]


@dataclasses.dataclass(frozen=True)
class Whitening:
    """Principal components of mean-free patches, scaled to variance 1.

    Attributes:
        basis: (D, pixels) orthonormal rows.
        scale: (D,) standard deviations along them.
    """

    basis: Float[NDArray, "D pixels"]
    scale: Float[NDArray, " D"]

    @classmethod
    def fit(cls, patches: Float[NDArray, "n pixels"]) -> Whitening:
        """Learn from patches; the second moment is about zero, so that the map is linear.

        Raises:
            ValueError: all patches are constant.
        """
        centred = np.asarray(patches, dtype=np.float64)
        centred = centred - centred.mean(axis=1, keepdims=True)
        variances, vectors = np.linalg.eigh(centred.T @ centred / len(centred))
        variances, vectors = variances[::-1], vectors[:, ::-1]
        if not np.abs(centred).max() > _rounding(np.asarray(patches)).max():
            raise ValueError("X holds constant patches only: there is nothing to whiten")
        kept = variances >= LEAST_VARIANCE * variances[0]
        # eigh leaves signs open: the largest element of each component is made positive.
        basis = vectors[:, kept].T
        top = np.abs(basis).argmax(axis=1)
        basis = basis * np.sign(basis[np.arange(len(basis)), top])[:, None]
        return cls(np.ascontiguousarray(basis), np.sqrt(variances[kept]))

    def vectors(self, patches: Float[NDArray, "n pixels"]) -> Float[NDArray, "n D"]:
        """Whitened patches, in the precision of the patches."""
        centred = patches - patches.mean(axis=1, keepdims=True)
        return centred @ (self.basis / self.scale[:, None]).T.astype(patches.dtype)

    def directions(self, patches: Float[NDArray, "n pixels"]) -> Directions:
        """Whitened patches as direction and norm; constant ones are blank."""
        whitened = self.vectors(patches)
        centred = np.abs(patches - patches.mean(axis=1, keepdims=True)).max(axis=1)
        norm = np.linalg.norm(whitened, axis=1)
        blank = (centred <= _rounding(patches)) | (norm == 0)
        norm = np.where(blank, 0, norm)
        x = np.where(blank[:, None], 0, whitened / np.where(blank, 1, norm)[:, None])
        return Directions(x.astype(patches.dtype), norm.astype(patches.dtype), blank)

    def patches(self, whitened: Float[NDArray, "n D"]) -> Float[NDArray, "n pixels"]:
        """Mean-free patches of whitened vectors."""
        return whitened @ (self.basis * self.scale[:, None]).astype(whitened.dtype)

    @property
    def filters(self) -> Float[NDArray, "D pixels"]:
        """What a whitened dimension computes from the pixels (`patches` shows what it draws)."""
        return self.basis / self.scale[:, None]


def _rounding(patches: NDArray) -> NDArray:
    """(n,) deviations from the mean that rounding alone makes of a constant patch."""
    kind = patches.dtype if np.issubdtype(patches.dtype, np.floating) else np.float64
    return 32 * np.finfo(kind).eps * np.abs(patches).max(axis=1)
