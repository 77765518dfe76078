"""The method itself: replace this estimate of a location by it.

Symbols: x is (n,) samples. The code stands in the order of the paper's equations.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


class Hexgen:
    """Say what it does, when to use it and when not.

    Attributes:
        location_: the learned location, in the unit of the samples.
    """

    location_: float

    def fit(self, x: ArrayLike) -> Hexgen:
        """Learn from samples.

        Args:
            x: (n,) finite samples, n >= 1.

        Raises:
            ValueError: x is empty, not one-dimensional, or not finite.
        """
        samples = np.asarray(x, dtype=float)
        if samples.ndim != 1 or samples.size == 0 or not np.isfinite(samples).all():
            raise ValueError(
                f"x has shape {samples.shape}: give one-dimensional, non-empty, finite samples"
            )
        self.location_ = float(samples.mean())
        return self
