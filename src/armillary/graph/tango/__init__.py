"""Tango: a graph layer that lets features travel far, with an energy that does not rise.

    from armillary.graph.tango import Tango, TangoConv

    conv = TangoConv(channels=32, num_steps=16)       # in the place of any PyG convolution
    h, trace = conv(x, edge_index, batch=batch, return_trace=True)
    trace.energy, trace.cosine                         # V along the flow, ⟨T, ∇V⟩ in every step
    model = Tango(in_channels=7, hidden_channels=32, num_layers=16, out_channels=5)

Source: Eliasof, Haber, Schönlieb, "TANGO: Graph Neural Dynamics via Learned Energy and Tangential
Flows", ICML 2026 (arXiv 2508.05070).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.lazy import attach

if TYPE_CHECKING:
    from armillary.graph.tango.energy import EnergyModule as EnergyModule
    from armillary.graph.tango.energy import EnergyNotDifferentiable as EnergyNotDifferentiable
    from armillary.graph.tango.energy import LogCoshEnergy as LogCoshEnergy
    from armillary.graph.tango.estimator import SklearnTango as SklearnTango
    from armillary.graph.tango.flow import FlowTrace as FlowTrace
    from armillary.graph.tango.flow import TangoConv as TangoConv
    from armillary.graph.tango.graphs import Graph as Graph
    from armillary.graph.tango.models import Tango as Tango
    from armillary.graph.tango.models import sensitivity as sensitivity
    from armillary.graph.tango.operators import Propagation as Propagation
    from armillary.graph.tango.operators import Segments as Segments

_HOMES = {
    "EnergyModule": "energy",
    "EnergyNotDifferentiable": "energy",
    "FlowTrace": "flow",
    "Graph": "graphs",
    "LogCoshEnergy": "energy",
    "Propagation": "operators",
    "Segments": "operators",
    "SklearnTango": "estimator",
    "Tango": "models",
    "TangoConv": "flow",
    "sensitivity": "models",
}

__all__ = list(_HOMES)

__getattr__ = attach(__name__, _HOMES, slug="tango", extra="graph")
