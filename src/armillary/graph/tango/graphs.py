"""A graph as tensors, many graphs as one, and the values of nodes or graphs.

Legend of shapes: N nodes, E edges, G graphs, d channels.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float, Int64, Shaped


@dataclasses.dataclass
class Graph:
    """A graph, or a batch of graphs; PyG's ``Data`` has the same attributes.

    Attributes:
        x: (N, d) features.
        edge_index: (2, E) sources above targets.
        y: targets of nodes, (N, …), or of graphs, (G, …); None: unknown.
        edge_attr: (E, …) or None.
        edge_weight: (E,) or None.
        batch: (N,) graph of each node, or None.
        num_graphs: G; None: as many as ``batch`` names, or one.
    """

    x: Float[Tensor, "N d"]
    edge_index: Int64[Tensor, "2 E"]
    y: Shaped[Tensor, ...] | None = None
    edge_attr: Shaped[Tensor, "E ..."] | None = None
    edge_weight: Float[Tensor, " E"] | None = None
    batch: Int64[Tensor, " N"] | None = None
    num_graphs: int | None = None

    @property
    def num_nodes(self) -> int:
        return len(self.x)

    @classmethod
    def of(cls, data: object) -> Graph:
        """A graph from anything that has its attributes, such as PyG's ``Data``."""
        if isinstance(data, Graph) and isinstance(data.x, Tensor):
            return data
        missing = [name for name in ("x", "edge_index") if getattr(data, name, None) is None]
        if missing:
            raise ValueError(
                f"a {type(data).__name__} without {' and '.join(missing)} is no graph: give x "
                "(nodes, channels) and edge_index (2, edges)"
            )
        names = [f.name for f in dataclasses.fields(cls) if f.name != "num_graphs"]
        fields = {name: getattr(data, name, None) for name in names}
        for name in ("x", "edge_index"):
            if not isinstance(fields[name], Tensor):
                fields[name] = torch.as_tensor(fields[name])
        # PyG's batches count their graphs, and so those without nodes.
        count = getattr(data, "num_graphs", None) if fields["batch"] is not None else None
        return cls(**fields, num_graphs=count)  # pyright: ignore[reportArgumentType]


def joined(graphs: Sequence[Graph]) -> Graph:
    """Many graphs as one batch, in their order.

    Raises:
        ValueError: there are none, or some have a field (edge_attr, …) and some have not.
    """
    if not graphs:
        raise ValueError("no graphs were given: give at least one")
    counts = torch.tensor([g.num_nodes for g in graphs])
    starts = counts.cumsum(0) - counts
    edges = [g.edge_index + start for g, start in zip(graphs, starts, strict=True)]
    optional: dict[str, Tensor | None] = {}
    for name in ("y", "edge_attr", "edge_weight"):
        found = [getattr(g, name) for g in graphs]
        if any(v is None for v in found) and any(v is not None for v in found):
            raise ValueError(f"some graphs have {name} and some have none: give it to all or none")
        rows = [v for v in found if v is not None]
        optional[name] = (
            torch.cat([v.reshape(1, -1) if v.ndim == 0 else v for v in rows]) if rows else None
        )
    return Graph(
        torch.cat([g.x for g in graphs]),
        torch.cat(edges, 1),
        batch=torch.repeat_interleave(torch.arange(len(graphs)), counts),
        num_graphs=len(graphs),
        **optional,
    )


def batches(
    graphs: Sequence[Graph], size: int, generator: torch.Generator | None = None
) -> Iterator[tuple[Graph, Tensor]]:
    """Batches of at most ``size`` graphs with their indices; shuffled by a generator if given."""
    order = torch.arange(len(graphs))
    if generator is not None:
        order = torch.randperm(len(graphs), generator=generator)
    for start in range(0, len(order), size):
        part = order[start : start + size]
        yield joined([graphs[i] for i in part.tolist()]), part
