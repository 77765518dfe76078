"""Tango: one sentence on what it gives.

    from armillary.graph.tango import Tango

    location = Tango().fit(samples).location_

Source: the paper's title, authors, venue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.lazy import attach

if TYPE_CHECKING:
    from armillary.graph.tango.estimator import Tango as Tango

_HOMES = {"Tango": "estimator"}

__all__ = list(_HOMES)

__getattr__ = attach(__name__, _HOMES, slug="tango")
