"""The rivals, as cores between the same encoder and decoder.

GCN, GIN, GATv2, GCNII, GPS and A-DGN are PyG's layers as they are; SWAN and GRAFF are written here
from their papers. Every core maps (N, c) features to (N, c) features over a `Wiring`, at a width
that gives the wanted number of parameters.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from armillary.graph.tango.flow import TangoConv
from armillary.graph.tango.graphs import Graph
from armillary.graph.tango.models import pooled
from armillary.graph.tango.operators import Propagation, Segments, product, sparse


class Wiring:
    """The edges of a batch in each form that a core reads; made once, kept for all epochs."""

    def __init__(self, graph: Graph) -> None:
        self.num_nodes = graph.num_nodes
        self.edge_index, self.batch = graph.edge_index, graph.batch
        self.operator = Propagation(graph.edge_index, graph.num_nodes, graph.edge_weight)
        self.segments = Segments(graph.num_nodes, graph.batch)

    @functools.cached_property
    def one_graph(self) -> Tensor:
        """(N,) graph of each node, also where all form one."""
        if self.batch is not None:
            return self.batch
        return torch.zeros(self.num_nodes, dtype=torch.long)

    @functools.cached_property
    def virtual(self) -> Tensor:
        """Â with a virtual node a graph behind the last node, wired as PyG's ``VirtualNode``."""
        return Propagation(self.virtual_edges, self.num_nodes + self.segments.num_graphs).matrix

    @functools.cached_property
    def virtual_edges(self) -> Tensor:
        nodes = torch.arange(self.num_nodes)
        hub = self.num_nodes + self.one_graph
        both = torch.stack([torch.cat([nodes, hub]), torch.cat([hub, nodes])])
        return torch.cat([self.edge_index, both], 1)

    @functools.cached_property
    def random_walk(self) -> Propagation:
        """R = D^(-1) A, rows that sum to 1, without self-loops."""
        return _RandomWalk(self.edge_index, self.num_nodes)


class _RandomWalk(Propagation):
    def __init__(self, edge_index: Tensor, num_nodes: int) -> None:
        super().__init__(edge_index, num_nodes)
        source, target = edge_index
        degree = torch.bincount(target, minlength=num_nodes).clamp(min=1)
        values = 1.0 / degree[target]
        self._matrix = sparse(target, source, values, num_nodes)
        self._transposed = sparse(source, target, values, num_nodes)


Core = torch.nn.Module


class Stack(torch.nn.Module):
    """L message-passing layers, H ← H + τ relu(layer(H)), or H ← relu(layer(H)) without residual.

    Args:
        make: makes a layer.
        depth: L.
        share: one layer for all steps, or one each.
        step: τ; 0: no residual.
        on: which form of the edges layers read.
        dropout: on each layer's output but the last.
    """

    def __init__(
        self,
        make: Callable[[], torch.nn.Module],
        depth: int,
        share: bool,
        step: float,
        on: Callable[[Wiring], Any],
        dropout: float,
    ) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(make() for _ in range(1 if share else depth))
        self.depth, self.step, self.on = depth, step, on
        self.dropout = torch.nn.Dropout(dropout)

    def forward(self, h: Tensor, wiring: Wiring) -> Tensor:
        edges = self.on(wiring)
        for i in range(self.depth):
            out = torch.relu(self.layers[i % len(self.layers)](h, edges))
            if i < self.depth - 1:  # the frame drops what comes out of the core
                out = self.dropout(out)
            h = h + self.step * out if self.step else out
        return h


class VirtualStack(torch.nn.Module):
    """A `Stack` over the graph with virtual nodes, which start from a learnt vector."""

    def __init__(self, channels: int, stack: Stack) -> None:
        super().__init__()
        self.stack = stack
        self.start = torch.nn.Parameter(torch.zeros(channels))

    def forward(self, h: Tensor, wiring: Wiring) -> Tensor:
        hubs = self.start.expand(wiring.segments.num_graphs, -1)
        return self.stack(torch.cat([h, hubs]), wiring)[: len(h)]


class InitialResidual(torch.nn.Module):
    """GCNII: H ← relu(GCN2Conv(H, H⁰)); shared weights with the layer's own β_l = log(θ/l + 1)."""

    def __init__(self, channels: int, depth: int, share: bool, dropout: float) -> None:
        super().__init__()
        from torch_geometric.nn import GCN2Conv

        self.layers = torch.nn.ModuleList(
            GCN2Conv(channels, alpha=0.1, theta=0.5, layer=i + 1, normalize=False)
            for i in range(depth)
        )
        self.dropout = torch.nn.Dropout(dropout)
        if share:
            for layer in self.layers:
                layer.weight1 = self.layers[0].weight1

    def forward(self, h: Tensor, wiring: Wiring) -> Tensor:
        first, edges = h, wiring.operator.matrix
        for layer in self.layers:
            h = torch.relu(layer(self.dropout(h), first, edges))
        return h


def convolution(kind: str, channels: int, *, bias: bool = True) -> torch.nn.Module:
    """PyG's ``GCNConv`` on Â, or ``GINConv`` (with an MLP of two layers) on the edges."""
    from torch_geometric.nn import GCNConv, GINConv

    if kind == "gcn":
        return GCNConv(channels, channels, bias=bias, normalize=False)
    return GINConv(
        torch.nn.Sequential(
            torch.nn.Linear(channels, channels),
            torch.nn.ReLU(),
            torch.nn.Linear(channels, channels),
        )
    )


def edges_for(kind: str, wiring: Wiring) -> Tensor:
    """What a `convolution` reads: Â as CSR, or the plain edges."""
    return wiring.operator.matrix if kind == "gcn" else wiring.edge_index


class Attention(torch.nn.Module):
    """GPS layers around a convolution, as published: batch norm, full attention, an MLP.

    With ``share`` one layer, its batch norms too, is taken ``depth`` times.
    """

    def __init__(
        self, channels: int, depth: int, share: bool, dropout: float, kind: str = "gcn"
    ) -> None:
        super().__init__()
        from torch_geometric.nn import GPSConv

        self.kind = kind
        self.layers = torch.nn.ModuleList(
            GPSConv(
                channels,
                convolution(kind, channels),  # pyright: ignore[reportArgumentType]
                heads=2 - channels % 2,
                dropout=dropout,
            )
            for _ in range(1 if share else depth)
        )
        self.depth = depth

    def forward(self, h: Tensor, wiring: Wiring) -> Tensor:
        for i in range(self.depth):
            layer = self.layers[i % len(self.layers)]
            h = layer(h, edges_for(self.kind, wiring), wiring.one_graph)
        return h


class AntiSymmetric(torch.nn.Module):
    """A-DGN, PyG's ``AntiSymmetricConv`` around a convolution."""

    def __init__(self, channels: int, depth: int, step: float, kind: str = "gcn") -> None:
        super().__init__()
        from torch_geometric.nn import AntiSymmetricConv

        self.kind = kind
        inner: Any = convolution(kind, channels, bias=False)
        self.layer = AntiSymmetricConv(channels, inner, num_iters=depth, epsilon=step, gamma=0.1)

    def forward(self, h: Tensor, wiring: Wiring) -> Tensor:
        return self.layer(h, edges_for(self.kind, wiring))


class Swan(torch.nn.Module):
    """SWAN: antisymmetric in weights and in space.

    H ← H + ε tanh(H (W − Wᵀ − γI) + ÂH (U − Uᵀ) + κ (R − Rᵀ) H (Q + Qᵀ) + b), R = D^(-1) A.
    Source: Gravina et al., "On Oversquashing in Graph Neural Networks Through the Lens of
    Dynamical Systems", AAAI 2025.
    """

    def __init__(
        self, channels: int, depth: int, step: float, gamma: float = 0.1, kappa: float = 0.5
    ) -> None:
        super().__init__()
        self.depth, self.step, self.gamma, self.kappa = depth, step, gamma, kappa
        self.own, self.neighbour, self.space = (
            torch.nn.Parameter(_glorot(channels)) for _ in range(3)
        )
        self.bias = torch.nn.Parameter(torch.zeros(channels))

    def forward(self, h: Tensor, wiring: Wiring) -> Tensor:
        own = self.own - self.own.T - self.gamma * torch.eye(len(self.bias))
        neighbour = self.neighbour - self.neighbour.T
        space = self.kappa * (self.space + self.space.T)
        walk = wiring.random_walk
        for _ in range(self.depth):
            messages = (wiring.operator @ h) @ neighbour + (walk @ h - walk.T @ h) @ space
            h = h + self.step * torch.tanh(h @ own + messages + self.bias)
        return h


class Graff(torch.nn.Module):
    """GRAFF: the gradient flow of a quadratic energy, symmetric weights, no tangent part.

    H ← H + τ (ÂHW − HΩ − H⁰W̃), W symmetric, Ω and W̃ diagonal. Source: Di Giovanni et al.,
    "Understanding Convolution on Graphs via Energies", TMLR 2023.
    """

    def __init__(self, channels: int, depth: int, step: float) -> None:
        super().__init__()
        self.depth, self.step = depth, step
        self.weight = torch.nn.Parameter(_glorot(channels))
        self.omega = torch.nn.Parameter(torch.zeros(channels))
        self.source = torch.nn.Parameter(torch.zeros(channels))

    def forward(self, h: Tensor, wiring: Wiring) -> Tensor:
        weight = (self.weight + self.weight.T) / 2
        first = h * self.source
        for _ in range(self.depth):
            h = h + self.step * ((wiring.operator @ h) @ weight - h * self.omega - first)
        return h


class Flow(torch.nn.Module):
    """Our layer as a core."""

    def __init__(self, channels: int, depth: int, step: float, dropout: float, **flow: Any) -> None:
        super().__init__()
        self.conv = TangoConv(channels, depth, step=step, dropout=dropout, **flow)

    def forward(self, h: Tensor, wiring: Wiring) -> Tensor:
        return self.conv(h, wiring.operator, None, wiring.batch)


class Network(torch.nn.Module):
    """Linear, core, pool for graph tasks, Linear: the same frame for all contenders."""

    def __init__(
        self, core: Core, inputs: int, width: int, outputs: int, task: str, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.encoder = torch.nn.Linear(inputs, width)
        self.core = core
        self.decoder = torch.nn.Linear(width, outputs)
        self.dropout = torch.nn.Dropout(dropout)
        self.task = task

    def forward(self, x: Tensor | SparseFeatures, wiring: Wiring) -> Tensor:
        if isinstance(x, SparseFeatures):
            h = x.encode(self.encoder, self.dropout.p if self.training else 0.0)
        else:
            h = self.encoder(self.dropout(x))
        h = self.dropout(self.core(h, wiring))
        return self.decoder(pooled(h, wiring.segments, "mean") if self.task == "graph" else h)


class SparseFeatures:
    """A bag of words (N, d) with few entries, and dropout on those entries."""

    def __init__(self, rows: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]):
        n, d = self.shape = shape
        self.rows, self.columns, self.values = rows, columns, values
        order = torch.argsort(columns * n + rows)
        self.order = order
        row_pointer = torch.bincount(rows, minlength=n).cumsum(0)
        column_pointer = torch.bincount(columns, minlength=d).cumsum(0)
        zero = row_pointer.new_zeros(1)
        self.row_pointer = torch.cat([zero, row_pointer])
        self.column_pointer = torch.cat([zero, column_pointer])

    def __len__(self) -> int:
        return self.shape[0]

    def encode(self, linear: torch.nn.Linear, dropout: float) -> Tensor:
        """(N, c): the linear layer on the features."""
        n, d = self.shape
        values = torch.nn.functional.dropout(self.values, dropout, dropout > 0)
        matrix = torch.sparse_csr_tensor(self.row_pointer, self.columns, values, (n, d))
        transposed = torch.sparse_csr_tensor(
            self.column_pointer, self.rows[self.order], values[self.order], (d, n)
        )
        return product(linear.weight.T, matrix, transposed) + linear.bias


def _glorot(channels: int) -> Tensor:
    return torch.empty(channels, channels).uniform_(-1, 1) * (3 / channels) ** 0.5


def make_core(
    name: str, channels: int, depth: int, *, step: float = 0.5, share: bool = True,
    dropout: float = 0.0, kind: str = "gcn", **flow: Any,
) -> Core:  # fmt: skip
    """A contender's core of ``channels`` channels and ``depth`` layers, by name.

    ``kind`` is the convolution inside ours, GPS and A-DGN.
    """
    if name == "ours":
        return Flow(channels, depth, step, dropout, share_weights=share, backbone=kind, **flow)
    if name == "swan":
        return Swan(channels, depth, step)
    if name == "graff":
        return Graff(channels, depth, step)
    if name == "a-dgn":
        return AntiSymmetric(channels, depth, step, kind)
    if name == "gcn2":
        return InitialResidual(channels, depth, share, dropout)
    if name == "gps":
        return Attention(channels, depth, share, dropout, kind)
    from torch_geometric.nn import GATv2Conv

    if name == "gatv2":
        return Stack(
            lambda: GATv2Conv(channels, channels // 2, heads=2),
            depth, share, step, lambda w: w.edge_index, dropout,
        )  # fmt: skip

    def gcn() -> torch.nn.Module:
        return convolution("gcn", channels)

    def gin() -> torch.nn.Module:
        return convolution("gin", channels)

    if name == "gcn":
        return Stack(gcn, depth, share, 0.0, lambda w: w.operator.matrix, dropout)
    if name == "gcn-residual":
        return Stack(gcn, depth, share, step, lambda w: w.operator.matrix, dropout)
    if name == "gcn-virtual-node":
        stack = Stack(gcn, depth, share, step, lambda w: w.virtual, dropout)
        return VirtualStack(channels, stack)
    if name == "gin-residual":
        return Stack(gin, depth, share, step, lambda w: w.edge_index, dropout)
    if name == "gin-virtual-node":
        stack = Stack(gin, depth, share, step, lambda w: w.virtual_edges, dropout)
        return VirtualStack(channels, stack)
    raise ValueError(f"name={name!r} is no contender")


def make_network(
    name: str, inputs: int, outputs: int, depth: int, *, parameters: int, task: str,
    dropout: float = 0.0, **settings: Any,
) -> Network:  # fmt: skip
    """A network whose number of parameters is the nearest to ``parameters`` that a width gives."""

    def build(width: int) -> Network:
        core = make_core(name, width, depth, dropout=dropout, **settings)
        return Network(core, inputs, width, outputs, task, dropout)

    def gap(width: int) -> int:
        with torch.device("meta"):
            return count(build(width)) - parameters

    grid = 2 if name == "gatv2" else 1  # two heads share the channels
    low, high = 1, 2
    while gap(high * grid) < 0:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if gap(middle * grid) < 0 else (low, middle)
    return build(min((low * grid, high * grid), key=lambda width: abs(gap(width))))


def count(model: torch.nn.Module) -> int:
    """Learnable numbers of a model, shared ones once."""
    return sum(p.numel() for p in model.parameters())
