"""Message passing that drives the tangent flow: a graph convolution of ours, or any of PyG's.

Legend of shapes: N nodes, c channels.
"""

from __future__ import annotations

import inspect
import math
import warnings

import torch
from torch import Tensor

from armillary.errors import require
from armillary.graph.tango.energy import Point
from armillary.graph.tango.operators import Propagation, Segments

#: Backbones that have a name; all but ``gcn`` are PyG's, with ``c`` channels in and out.
BACKBONES = ("gcn", "gin", "gatv2", "gated", "gps")


class Convolution(torch.nn.Module):
    """ÂHW + b: what PyG's ``GCNConv`` computes, on the product ÂH that the energy has made."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(channels, channels))
        self.bias = torch.nn.Parameter(torch.empty(channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = math.sqrt(3 / len(self.bias))  # Glorot
        torch.nn.init.uniform_(self.weight, -bound, bound)
        torch.nn.init.zeros_(self.bias)

    def messages(self, point: Point) -> Tensor:
        """(N, c) the convolution at a point."""
        return torch.addmm(self.bias, point.neighbours.to(self.weight.dtype), self.weight)


class Foreign(torch.nn.Module):
    """A module that is called as PyG's convolutions are.

    It gets ``(x, edge_index)`` and, where its ``forward`` names them, ``edge_attr``,
    ``edge_weight`` and ``batch``.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module
        self.takes = frozenset(inspect.signature(module.forward).parameters)
        if any("BatchNorm" in type(part).__name__ for part in module.modules()):
            warnings.warn(
                f"the backbone {type(module).__name__} holds a BatchNorm: its messages depend on "
                "the other graphs of a batch, and so does the energy's trace",
                UserWarning,
                stacklevel=3,
            )

    def reset_parameters(self) -> None:
        reset = getattr(self.module, "reset_parameters", None)
        if callable(reset):
            reset()

    def messages(
        self, point: Point, operator: Propagation, segments: Segments, edge_attr: Tensor | None
    ) -> Tensor:
        """(N, c) the module's output at a point."""
        optional = {
            "edge_attr": edge_attr,
            "edge_weight": operator.edge_weight,
            "batch": segments.batch,
        }
        given = {k: v for k, v in optional.items() if v is not None and k in self.takes}
        out = self.module(point.x, operator.edge_index, **given)
        if not isinstance(out, Tensor) or out.shape != point.x.shape:
            shape = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
            raise ValueError(
                f"the backbone {type(self.module).__name__} gave {shape}; it must keep the shape "
                f"of its input, {tuple(point.x.shape)}"
            )
        return out


def make_backbone(backbone: str | torch.nn.Module, channels: int) -> Convolution | Foreign:
    """A backbone by name, or a wrapper around a module.

    Raises:
        ValueError: the name is unknown.
        MissingExtra: the name is PyG's, and PyG is not installed.
    """
    if isinstance(backbone, torch.nn.Module):
        return Foreign(backbone)
    if backbone == "gcn":
        return Convolution(channels)
    if backbone not in BACKBONES:
        raise ValueError(
            f"backbone={backbone!r}: give a PyG convolution, or one of {', '.join(BACKBONES)}"
        )
    nn = require("torch_geometric.nn", what="tango", extra="graph")
    if backbone == "gin":
        layers = torch.nn.Sequential(
            torch.nn.Linear(channels, channels),
            torch.nn.ReLU(),
            torch.nn.Linear(channels, channels),
        )
        return Foreign(nn.GINConv(layers))
    if backbone == "gatv2":
        return Foreign(nn.GATv2Conv(channels, channels))
    if backbone == "gated":
        return Foreign(nn.ResGatedGraphConv(channels, channels))
    convolution = nn.GCNConv(channels, channels)
    return Foreign(nn.GPSConv(channels, convolution, norm=None))
