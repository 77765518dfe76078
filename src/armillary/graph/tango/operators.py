"""The two linear maps of the method: normalised propagation over edges, and sums over each graph.

Legend of shapes: N nodes, E edges, G graphs in a batch, c channels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float, Int64, Shaped


class _Product(torch.autograd.Function):
    """Sparse times dense with a constant matrix whose transpose is at hand.

    PyTorch's own backward transposes the matrix anew at every step; with both held, backward costs
    as much as forward. Differentiable any number of times.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: Tensor, transposed: Tensor) -> Tensor:
        ctx.matrix, ctx.transposed = matrix, transposed
        return matrix @ x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return _Product.apply(gradients[0].contiguous(), ctx.transposed, ctx.matrix), None, None


def product(x: Tensor, matrix: Tensor, transposed: Tensor) -> Tensor:
    """A constant sparse matrix times x, differentiable in x; ``transposed`` is its transpose."""
    with torch.autocast(x.device.type, enabled=False):  # it would cast to what CSR lacks
        return _Product.apply(x, matrix, transposed)  # pyright: ignore[reportReturnType]


class Propagation:
    """Â = D^(-1/2) (A + I) D^(-1/2) of a graph, as a sparse matrix with its transpose.

    ``a @ x`` is Âx and ``a.T @ x`` is Âᵀx for x of shape (N, c); both are differentiable in x.
    Entry (i, j) weighs the message from j to i; D counts incoming edges and the self-loop (the
    convention of PyG's ``gcn_norm``, which gives the same numbers).

    Build it once where the same graph is used many times: `TangoConv` takes it in the place of
    ``edge_index``.

    Args:
        edge_index: (2, E) integers, sources above targets.
        num_nodes: N. Nodes without edges are fine: Â keeps their features.
        edge_weight: (E,) non-negative; 1 if left out. A self-loop that is given keeps its weight;
            nodes without one get one of weight 1.
        dtype: of Â's entries.

    Raises:
        ValueError: an edge names a node that is not there, a weight is negative or not finite, or
            the shapes do not match.
        TypeError: ``edge_index`` does not hold integers.
    """

    def __init__(
        self,
        edge_index: Int64[Tensor, "2 E"],
        num_nodes: int,
        edge_weight: Float[Tensor, " E"] | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        edge_index = _checked(edge_index, num_nodes)
        weight = _checked_weight(edge_weight, edge_index, dtype)
        self.edge_index, self.edge_weight, self.num_nodes = edge_index, edge_weight, num_nodes
        source, target = edge_index
        looped = source[source == target]
        missing = torch.ones(num_nodes, dtype=torch.bool, device=edge_index.device)
        missing[looped] = False
        loops = missing.nonzero().flatten()
        source, target = torch.cat([source, loops]), torch.cat([target, loops])
        weight = torch.cat([weight, weight.new_ones(len(loops))])
        degree = weight.new_zeros(num_nodes).index_add_(0, target, weight)
        scale = degree.clamp(min=torch.finfo(dtype).tiny).rsqrt()
        values = scale[source] * weight * scale[target]
        # The sparsity pattern of both is made by the same sort, so that they agree to the bit.
        self._matrix = sparse(target, source, values, num_nodes)
        self._transposed = sparse(source, target, values, num_nodes)
        self.dtype, self.device = dtype, edge_index.device
        self._norms: dict[int, float] = {}  # shared with the transpose, whose norm is the same

    @property
    def T(self) -> Propagation:
        """The transpose: on a directed graph Âᵀ differs from Â."""
        other = object.__new__(Propagation)
        other.__dict__.update(self.__dict__)
        other._matrix, other._transposed = self._transposed, self._matrix
        return other

    @property
    def matrix(self) -> Float[Tensor, "N N"]:
        """(N, N) Â as a sparse CSR tensor."""
        return self._matrix

    def __matmul__(self, x: Float[Tensor, "N c"]) -> Float[Tensor, "N c"]:
        return product(x.to(self.dtype), self._matrix, self._transposed)

    def norm(self, rounds: int = 50) -> float:
        """‖Â‖₂ by power iteration: 1 on undirected graphs, up to √N on directed ones.

        Computed once and kept: Â is constant.
        """
        if rounds not in self._norms:
            self._norms[rounds] = self._power(rounds)
        return self._norms[rounds]

    def _power(self, rounds: int) -> float:
        if self.num_nodes == 0:
            return 0.0
        # Positive start: Â has no negative entry, so that its top singular vector is not missed.
        v = torch.ones(self.num_nodes, 1, dtype=self.dtype, device=self.device)
        with torch.no_grad():
            for _ in range(rounds):
                v = v / v.norm()
                v = self._transposed @ (self._matrix @ v)
        return float(v.norm().sqrt())

    def __repr__(self) -> str:
        return f"Propagation(nodes={self.num_nodes}, edges={self.edge_index.shape[1]})"


class Segments:
    """Which nodes form which graph of a batch.

    Args:
        num_nodes: N.
        batch: (N,) graph of each node, from 0; None: all nodes form one graph.
        device: of the sums, where there is no batch.
        num_graphs: G; None: one more than the largest number in ``batch``, so that graphs behind
            the last node, which have no nodes, are not seen.

    Raises:
        ValueError: ``batch`` is not one number a node, names more graphs than there are, or one
            below 0.
        TypeError: ``batch`` does not hold integers.
    """

    def __init__(
        self,
        num_nodes: int,
        batch: Int64[Tensor, " N"] | None = None,
        device: torch.device | None = None,
        num_graphs: int | None = None,
    ) -> None:
        if batch is not None and batch.shape != (num_nodes,):
            raise ValueError(
                f"batch has the shape {tuple(batch.shape)}, x has {num_nodes} rows: batch gives "
                "the graph of each node, one integer a row of x"
            )
        if batch is not None and (batch.is_floating_point() or batch.dtype == torch.bool):
            raise TypeError(f"batch holds {batch.dtype}; it must hold integers, graphs from 0")
        if batch is not None and len(batch) and not torch.compiler.is_compiling():
            lowest = int(batch.min())
            if lowest < 0:
                raise ValueError(f"batch names graph {lowest}: graphs count from 0")
        self.batch = batch
        named = 1 if batch is None else int(batch.max()) + 1 if len(batch) else 0
        self.num_graphs = named if num_graphs is None else num_graphs
        if named > self.num_graphs or (batch is None and self.num_graphs != 1):
            raise ValueError(
                f"num_graphs={num_graphs}: batch names {named} graphs; give as many, or more where "
                "the last ones have no nodes"
            )
        counts = torch.tensor([num_nodes], device=device)
        if batch is not None:
            counts = torch.bincount(batch, minlength=self.num_graphs)
        #: (G,) nodes of each graph.
        self.counts = counts

    def sum(self, x: Shaped[Tensor, "N ..."]) -> Shaped[Tensor, " G"]:
        """(N, …) to (G,): the sum of each graph over its nodes and all channels.

        Half precision is summed in float32.
        """
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        if self.batch is None:
            return wide.sum().reshape(1)
        rows = wide.flatten(1).sum(1) if wide.ndim > 1 else wide
        return rows.new_zeros(self.num_graphs).index_add(0, self.batch, rows)

    def dot(self, x: Float[Tensor, "N c"], y: Float[Tensor, "N c"]) -> Float[Tensor, " G"]:
        """(N, c) twice to (G,): inner products over the nodes and channels of each graph."""
        if x.element_size() < 4:
            x = x.float()
        y = y.to(x.dtype)
        if self.batch is None:
            return torch.dot(x.reshape(-1), y.reshape(-1)).reshape(1)
        return self.sum(x * y)

    def spread(self, values: Shaped[Tensor, " G"]) -> Shaped[Tensor, "N_or_1 1"]:
        """(G,) to (N, 1) or (1, 1): each node gets its graph's value."""
        return values.reshape(1, 1) if self.batch is None else values[self.batch].unsqueeze(1)


def _checked(edge_index: Tensor, num_nodes: int) -> Tensor:
    if edge_index.ndim != 2 or edge_index.shape[0] != 2:
        raise ValueError(
            f"edge_index has the shape {tuple(edge_index.shape)}; it must be (2, E): sources, "
            "targets"
        )
    if edge_index.is_floating_point() or edge_index.dtype == torch.bool:
        raise TypeError(f"edge_index holds {edge_index.dtype}; it must hold integers")
    edge_index = edge_index.long()
    if edge_index.numel():
        low, high = int(edge_index.min()), int(edge_index.max())
        if low < 0 or high >= num_nodes:
            raise ValueError(
                f"edge_index names node {low if low < 0 else high}, but x has {num_nodes} rows "
                f"(nodes 0 to {num_nodes - 1}): x needs one row a node"
            )
    return edge_index


def _checked_weight(weight: Tensor | None, edge_index: Tensor, dtype: torch.dtype) -> Tensor:
    edges = edge_index.shape[1]
    if weight is None:
        return torch.ones(edges, dtype=dtype, device=edge_index.device)
    if weight.shape != (edges,):
        raise ValueError(
            f"edge_weight has the shape {tuple(weight.shape)}, edge_index has {edges} edges: give "
            "one weight an edge"
        )
    if weight.requires_grad:
        raise ValueError(
            "edge_weight asks for a gradient; the operator is constant: detach it, or use a "
            "backbone that learns from edge_attr"
        )
    if not bool(torch.isfinite(weight).all()):
        edge = int((~torch.isfinite(weight)).nonzero()[0])
        raise ValueError(
            f"edge_weight is {float(weight[edge])} at edge {edge}; give finite weights"
        )
    if edges and float(weight.min()) < 0:
        edge = int(weight.argmin())
        raise ValueError(
            f"edge_weight is {float(weight[edge]):g} at edge {edge}: symmetric normalisation takes "
            "roots of degrees, so that weights must be >= 0"
        )
    return weight.to(dtype)


def sparse(row: Tensor, column: Tensor, values: Tensor, n: int) -> Tensor:
    """An (n, n) CSR matrix; entries of one place are added up."""
    import warnings

    key, order = torch.sort(row * n + column, stable=True)
    unique, place = torch.unique_consecutive(key, return_inverse=True)
    summed = values.new_zeros(len(unique)).index_add_(0, place, values[order])
    counts = torch.bincount(unique // max(n, 1), minlength=n)
    pointers = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse")
        return torch.sparse_csr_tensor(pointers, unique % max(n, 1), summed, (n, n))
