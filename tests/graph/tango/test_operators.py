"""Â, its transpose, and sums over graphs."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.graph.tango import Propagation, Segments


def dense(edge_index: torch.Tensor, n: int, weight: torch.Tensor | None = None) -> torch.Tensor:
    """Â entry by entry, as the formula stands."""
    a = torch.zeros(n, n, dtype=torch.float64)
    for e, (source, target) in enumerate(edge_index.T.tolist()):
        a[target, source] += 1.0 if weight is None else float(weight[e])
    for i in range(n):
        if not ((edge_index[0] == i) & (edge_index[1] == i)).any():
            a[i, i] = 1.0
    degree = a.sum(1)
    return torch.stack(
        [
            torch.stack([a[i, j] / math.sqrt(degree[i] * degree[j]) for j in range(n)])
            for i in range(n)
        ]
    )


@st.composite
def graphs(draw):
    n = draw(st.integers(1, 8))
    ends = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1))
    pairs = draw(st.lists(ends, max_size=20))
    return n, torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).T


@settings(max_examples=40, deadline=None)
@given(graphs())
def test_operator_and_transpose_are_the_dense_formula(graph):
    n, edges = graph
    operator = Propagation(edges, n, dtype=torch.float64)
    expected = dense(edges, n)
    x = torch.randn(n, 3, dtype=torch.float64)
    torch.testing.assert_close(operator @ x, expected @ x)
    torch.testing.assert_close(operator.T @ x, expected.T @ x)
    assert operator.norm(200) == pytest.approx(
        float(torch.linalg.matrix_norm(expected, 2)), rel=1e-3
    )


def test_operator_is_that_of_pyg(directed):
    pytest.importorskip("torch_geometric")
    from torch_geometric.nn.conv.gcn_conv import gcn_norm
    from torch_geometric.utils import to_dense_adj

    weight = torch.rand(directed.edge_index.shape[1])
    edges, values = gcn_norm(directed.edge_index, weight, 7)
    expected = to_dense_adj(edges, edge_attr=values, max_num_nodes=7)[0].T
    found = Propagation(directed.edge_index, 7, weight).matrix.to_dense()
    torch.testing.assert_close(found, expected)


def test_undirected_norm_is_one_and_directed_exceeds_it(ring, directed):
    assert Propagation(ring.edge_index, 10).norm() == pytest.approx(1, abs=1e-5)
    assert Propagation(directed.edge_index, 7).norm() > 1.05


def test_product_is_twice_differentiable(directed):
    operator = Propagation(directed.edge_index, 7, dtype=torch.float64)
    x = torch.randn(7, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: operator @ v, x)
    assert torch.autograd.gradgradcheck(lambda v: (operator @ v).tanh(), x)


def test_segments_sum_each_graph():
    batch = torch.tensor([0, 0, 2, 2, 2])
    segments = Segments(5, batch)
    x, y = torch.randn(5, 3), torch.randn(5, 3)
    expected = torch.stack([x[:2].sum(), torch.tensor(0.0), x[2:].sum()])
    torch.testing.assert_close(segments.sum(x), expected)
    inner = torch.stack([(x * y)[:2].sum(), torch.tensor(0.0), (x * y)[2:].sum()])
    torch.testing.assert_close(segments.dot(x, y), inner)
    assert segments.counts.tolist() == [2, 0, 3]
    assert segments.spread(torch.tensor([1.0, 2.0, 3.0])).flatten().tolist() == [1, 1, 3, 3, 3]


def test_half_precision_is_summed_in_float32():
    x = torch.full((4096, 8), 0.1, dtype=torch.bfloat16)
    total = Segments(4096).sum(x)
    assert total.dtype == torch.float32
    assert float(total) == pytest.approx(4096 * 8 * float(x[0, 0]), rel=1e-5)
    assert Segments(4096).dot(x, x).dtype == torch.float32


@pytest.mark.parametrize(
    ("edges", "n", "weight", "kind", "says"),
    [
        ([[0, 1], [1, 5]], 3, None, ValueError, r"names node 5, but x has 3 rows"),
        ([[0, -1], [1, 0]], 3, None, ValueError, "names node -1"),
        ([[0, 1], [1, 0]], 2, [1.0, -2.0], ValueError, "edge_weight is -2 at edge 1"),
        ([[0, 1], [1, 0]], 2, [1.0], ValueError, "one weight an edge"),
        ([[0, 1], [1, 0]], 2, [1.0, math.nan], ValueError, "edge_weight is nan at edge 1"),
        ([[0.0, 1.0], [1.0, 0.0]], 2, None, TypeError, "must hold integers"),
        ([0, 1], 2, None, ValueError, r"must be \(2, E\)"),
    ],
)
def test_bad_edges_are_told(edges, n, weight, kind, says):
    with pytest.raises(kind, match=says):
        Propagation(torch.tensor(edges), n, None if weight is None else torch.tensor(weight))
