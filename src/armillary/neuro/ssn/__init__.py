"""Stabilised supralinear networks: image patches coded by many units if faint, by few if strong.

    from armillary.neuro.ssn import SSNEncoder

    encoder = SSNEncoder(random_state=0).fit(patches)    # (n, pixels); local plasticity, no labels
    rates = encoder.transform(new_patches)               # (n, 192) rates in Hz
    encoder.ablate().transform(new_patches)              # the same without lateral connections

Source: "Stabilized Supralinear Networks Learn to Switch Coding Strategies Balancing Cost and
Performance", ICML 2026. Only its abstract is public: dynamics and learning rules are rebuilt from
the literature that each module names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.lazy import attach

if TYPE_CHECKING:
    from armillary.neuro.ssn.degrade import degrade as degrade
    from armillary.neuro.ssn.dynamics import FixedPoint as FixedPoint
    from armillary.neuro.ssn.dynamics import Regime as Regime
    from armillary.neuro.ssn.dynamics import SSNDynamics as SSNDynamics
    from armillary.neuro.ssn.dynamics import UnstableNetwork as UnstableNetwork
    from armillary.neuro.ssn.encoder import SSNEncoder as SSNEncoder
    from armillary.neuro.ssn.encoding import (
        ContrastOutsideTraining as ContrastOutsideTraining,
    )
    from armillary.neuro.ssn.encoding import Encoding as Encoding
    from armillary.neuro.ssn.encoding import UnconvergedRates as UnconvergedRates
    from armillary.neuro.ssn.metrics import active_fraction as active_fraction
    from armillary.neuro.ssn.metrics import energy as energy
    from armillary.neuro.ssn.metrics import treves_rolls as treves_rolls
    from armillary.neuro.ssn.network import Rules as Rules
    from armillary.neuro.ssn.patches import draw_patches as draw_patches
    from armillary.neuro.ssn.patches import grid_patches as grid_patches
    from armillary.neuro.ssn.responses import contrast_response as contrast_response

_HOMES = {
    "ContrastOutsideTraining": "encoding",
    "Encoding": "encoding",
    "FixedPoint": "dynamics",
    "Regime": "dynamics",
    "Rules": "network",
    "SSNDynamics": "dynamics",
    "SSNEncoder": "encoder",
    "UnconvergedRates": "encoding",
    "UnstableNetwork": "dynamics",
    "active_fraction": "metrics",
    "contrast_response": "responses",
    "degrade": "degrade",
    "draw_patches": "patches",
    "energy": "metrics",
    "grid_patches": "patches",
    "treves_rolls": "metrics",
}

__all__ = list(_HOMES)

__getattr__ = attach(__name__, _HOMES, slug="ssn", extra="neuro")
