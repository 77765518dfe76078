"""`Tango`: encoder, flow, pool and decoder, in the place of PyG's basic models.

Legend of shapes: N nodes, E edges, G graphs, d input channels, c hidden channels, o outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Protocol

import torch
from torch import Tensor

from armillary.graph.tango.flow import FlowTrace, TangoConv, refuse_non_finite
from armillary.graph.tango.operators import Propagation, Segments

if TYPE_CHECKING:
    from jaxtyping import Float, Int64, Shaped

Task = Literal["node", "graph"]
POOLS = ("mean", "sum", "max")


class GraphLike(Protocol):
    """What is read of a graph: PyG's ``Data`` and `armillary.graph.tango.Graph` have it."""

    x: Any
    edge_index: Any


class Tango(torch.nn.Module):
    """A whole network: Linear, `TangoConv`, pool for graph tasks, Linear.

    Args:
        in_channels: d.
        hidden_channels: c.
        num_layers: steps L of the flow.
        out_channels: o: classes or targets.
        task: ``node`` (one output a node) or ``graph`` (one a graph).
        pool: ``mean``, ``sum`` or ``max`` of a graph's nodes.
        dropout: on inputs, messages and outputs of the flow.
        **flow: further settings of `TangoConv`.

    Raises:
        ValueError: a setting is out of its range.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        task: Task = "node",
        pool: str = "mean",
        *,
        dropout: float = 0.0,
        **flow: Any,
    ) -> None:
        super().__init__()
        if task not in ("node", "graph"):
            raise ValueError(f"task={task!r}: it must be node or graph")
        if pool not in POOLS:
            raise ValueError(f"pool={pool!r}: it must be one of {', '.join(POOLS)}")
        self.task, self.pool = task, pool
        self.dropout = torch.nn.Dropout(dropout)
        self.encoder = torch.nn.Linear(in_channels, hidden_channels)
        self.conv = TangoConv(hidden_channels, num_layers, dropout=dropout, **flow)
        self.decoder = torch.nn.Linear(hidden_channels, out_channels)

    def reset_parameters(self) -> None:
        """Draw all weights anew, from torch's generator."""
        for part in (self.encoder, self.conv, self.decoder):
            part.reset_parameters()

    def forward(
        self,
        x: Float[Tensor, "N d"],
        edge_index: Int64[Tensor, "2 E"] | Propagation,
        edge_attr: Shaped[Tensor, "E ..."] | None = None,
        batch: Int64[Tensor, " N"] | None = None,
        *,
        edge_weight: Float[Tensor, " E"] | None = None,
        num_graphs: int | None = None,
    ) -> Float[Tensor, "rows o"]:
        """(N, d) features to (N, o) or (G, o) outputs; arguments as in `TangoConv.forward`.

        A graph without nodes has 0 for its pooled features.
        """
        self._check(x)
        h = self.encoder(self.dropout(x))
        h = self.conv(
            h, edge_index, edge_attr, batch, edge_weight=edge_weight, num_graphs=num_graphs
        )
        h = self.dropout(h)
        if self.task == "graph":
            h = pooled(h, Segments(len(h), batch, h.device, num_graphs), self.pool)
        return self.decoder(h)

    def trace(
        self,
        x: Float[Tensor, "N d"],
        edge_index: Int64[Tensor, "2 E"] | Propagation,
        edge_attr: Shaped[Tensor, "E ..."] | None = None,
        batch: Int64[Tensor, " N"] | None = None,
        *,
        edge_weight: Float[Tensor, " E"] | None = None,
        num_graphs: int | None = None,
    ) -> FlowTrace:
        """What the energy does along the flow of these graphs; without dropout or gradients."""
        self._check(x)
        training = self.training
        self.eval()
        try:
            with torch.no_grad():
                return self.conv(
                    self.encoder(x), edge_index, edge_attr, batch,
                    return_trace=True, edge_weight=edge_weight, num_graphs=num_graphs,
                )[1]  # fmt: skip
        finally:
            self.train(training)

    def _check(self, x: Tensor) -> None:
        expected = self.encoder.in_features
        if x.ndim != 2 or x.shape[1] != expected:
            given = x.shape[1] if x.ndim == 2 else tuple(x.shape)
            raise ValueError(
                f"x has {given} channels, the model was made for {expected}: x must be "
                f"(N, {expected})"
            )
        refuse_non_finite(x)


def pooled(x: Float[Tensor, "N c"], segments: Segments, pool: str) -> Float[Tensor, "G c"]:
    """(N, c) to (G, c): mean, sum or maximum over the nodes of each graph; 0 where it has none."""
    batch = segments.batch
    if batch is None:
        batch = torch.zeros(len(x), dtype=torch.long, device=x.device)
    shape = (segments.num_graphs, x.shape[1])
    if pool == "max":
        place = batch.unsqueeze(1).expand_as(x)
        return x.new_zeros(shape).scatter_reduce(0, place, x, "amax", include_self=False)
    total = x.new_zeros(shape).index_add(0, batch, x)
    return total if pool == "sum" else total / segments.counts.clamp(min=1).unsqueeze(1).to(x.dtype)


def sensitivity(model: Callable[..., Tensor], data: GraphLike, src: int, dst: int) -> float:
    """‖∂ out_dst / ∂ x_src‖, the Frobenius norm of a Jacobian: how far a signal reaches.

    A value that does not vanish with distance may come through the graph-wide scalar of the
    projection as much as through edges: compare with a node that no path connects to ``dst``.

    Args:
        model: a node-level module or function ``model(x, edge_index, …) -> (N, o)``, such as
            `Tango` or `TangoConv`.
        data: a graph with ``x`` and ``edge_index``; ``edge_attr``, ``edge_weight`` and ``batch``
            are passed on where it has them.
        src: the node whose features move.
        dst: the node whose outputs are watched.

    Raises:
        IndexError: there is no such node.
        ValueError: the outputs are not one row a node.
    """
    n = len(data.x)
    for name, node in (("src", src), ("dst", dst)):
        if not 0 <= node < n:
            raise IndexError(f"{name}={node}: the graph has the nodes 0 to {n - 1}")
    training = getattr(model, "training", False)
    if isinstance(model, torch.nn.Module):
        model.eval()
    try:
        x = data.x.detach().clone().requires_grad_()
        optional = {k: getattr(data, k, None) for k in ("edge_attr", "edge_weight", "batch")}
        given = {k: v for k, v in optional.items() if v is not None}
        out = model(x, data.edge_index, **given)
        if out.ndim != 2 or len(out) != n:
            raise ValueError(
                f"the model gave {tuple(out.shape)}; sensitivity needs one row of outputs a node, "
                f"({n}, …)"
            )
        total = 0.0
        for value in out[dst]:
            (slope,) = torch.autograd.grad(value, x, retain_graph=True, allow_unused=True)
            total += 0.0 if slope is None else float(slope[src].double().square().sum())
        return total**0.5
    finally:
        if isinstance(model, torch.nn.Module):
            model.train(training)
