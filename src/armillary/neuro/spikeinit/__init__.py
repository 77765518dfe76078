"""Spikeinit: one sentence on what it gives.

    from armillary.neuro.spikeinit import Spikeinit

    location = Spikeinit().fit(samples).location_

Source: the paper's title, authors, venue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.lazy import attach

if TYPE_CHECKING:
    from armillary.neuro.spikeinit.estimator import Spikeinit as Spikeinit

_HOMES = {"Spikeinit": "estimator"}

__all__ = list(_HOMES)

__getattr__ = attach(__name__, _HOMES, slug="spikeinit")
