"""Hexgen: one sentence on what it gives.

    from armillary.serving.hexgen import Hexgen

    location = Hexgen().fit(samples).location_

Source: the paper's title, authors, venue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.lazy import attach

if TYPE_CHECKING:
    from armillary.serving.hexgen.estimator import Hexgen as Hexgen

_HOMES = {"Hexgen": "estimator"}

__all__ = list(_HOMES)

__getattr__ = attach(__name__, _HOMES, slug="hexgen")
