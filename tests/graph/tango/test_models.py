"""The whole network, pools and sensitivity."""

from __future__ import annotations

import pytest
import torch

from armillary.graph.tango import Graph, Segments, Tango, sensitivity
from armillary.graph.tango.models import pooled


def test_pools_are_those_of_each_graph():
    x, batch = torch.randn(5, 3), torch.tensor([0, 0, 1, 1, 1])
    segments = Segments(5, batch)
    for pool, by_hand in (
        ("mean", lambda p: p.mean(0)),
        ("sum", lambda p: p.sum(0)),
        ("max", lambda p: p.amax(0)),
    ):
        expected = torch.stack([by_hand(x[:2]), by_hand(x[2:])])
        torch.testing.assert_close(pooled(x, segments, pool), expected)


def test_sensitivity_is_the_norm_of_the_jacobian(ring):
    weight = torch.randn(6, 3)
    mixing = torch.randn(10, 10)

    def linear(x, edge_index):
        return mixing @ x @ weight

    # ∂(M x W)_4 / ∂ x_7 = M_47 Wᵀ
    expected = abs(float(mixing[4, 7])) * float(weight.norm())
    assert sensitivity(linear, ring, src=7, dst=4) == pytest.approx(expected, rel=1e-5)


def test_the_graph_wide_scalar_reaches_what_no_path_does():
    """Two parts that no edge joins: only the scalar of the projection carries anything across."""
    edges = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
    graph = Graph(torch.randn(4, 5), edges)
    wide = Tango(5, 8, 3, 2, stable="none")
    local = Tango(5, 8, 3, 2, stable="none", projection="node")
    assert sensitivity(wide, graph, 0, 3) > 1e-6
    assert sensitivity(local, graph, 0, 3) == 0
    apart = Graph(graph.x, edges, batch=torch.tensor([0, 0, 1, 1]))
    assert sensitivity(wide, apart, 0, 3) == 0


def test_sensitivity_leaves_the_model_as_it_was(ring):
    model = Tango(6, 8, 2, 3, dropout=0.5)
    sensitivity(model, ring, 0, 1)
    assert model.training
    assert all(p.grad is None for p in model.parameters())
    with pytest.raises(IndexError, match="dst=10: the graph has the nodes 0 to 9"):
        sensitivity(model, ring, 0, 10)
    with pytest.raises(ValueError, match="one row of outputs a node"):
        sensitivity(Tango(6, 8, 2, 3, task="graph"), ring, 0, 1)


def test_graph_outputs_do_not_depend_on_the_company(ring):
    model = Tango(6, 8, 3, 2, task="graph", pool="sum")
    twice = Graph(
        torch.cat([ring.x, -ring.x]),
        torch.cat([ring.edge_index, ring.edge_index + 10], 1),
        batch=torch.arange(20) // 10,
    )
    found = model(twice.x, twice.edge_index, batch=twice.batch)
    torch.testing.assert_close(found[:1], model(ring.x, ring.edge_index), rtol=1e-4, atol=1e-5)


def test_trace_of_a_model_and_its_refusals(ring):
    model = Tango(6, 8, 5, 2, dropout=0.3)
    first, second = (model.trace(ring.x, ring.edge_index) for _ in range(2))
    torch.testing.assert_close(first.energy, second.energy, rtol=0, atol=0)
    assert model.training
    with pytest.raises(ValueError, match="x has 4 channels, the model was made for 6"):
        model(torch.randn(10, 4), ring.edge_index)
    with pytest.raises(ValueError, match="task='edge'"):
        Tango(6, 8, 5, 2, task="edge")
    with pytest.raises(ValueError, match="pool='median'"):
        Tango(6, 8, 5, 2, pool="median")


def test_smoke_it_takes_data_of_pyg(ring):
    data = pytest.importorskip("torch_geometric.data")
    batch = data.Batch.from_data_list(
        [data.Data(x=ring.x, edge_index=ring.edge_index) for _ in range(3)]
    )
    model = Tango(6, 8, 3, 2, task="graph")
    out = model(batch.x, batch.edge_index, batch=batch.batch)
    torch.testing.assert_close(out[0], out[2], rtol=1e-4, atol=1e-5)
