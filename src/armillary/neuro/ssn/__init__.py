"""Ssn: one sentence on what it gives.

    from armillary.neuro.ssn import Ssn

    location = Ssn().fit(samples).location_

Source: the paper's title, authors, venue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.lazy import attach

if TYPE_CHECKING:
    from armillary.neuro.ssn.estimator import Ssn as Ssn

_HOMES = {"Ssn": "estimator"}

__all__ = list(_HOMES)

__getattr__ = attach(__name__, _HOMES, slug="ssn")
