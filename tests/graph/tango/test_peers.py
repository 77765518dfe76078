"""The rivals: of equal size, wired as said, and rewrites that match slow twins."""

from __future__ import annotations

import pytest

pytest.importorskip("torch_geometric")

import torch

from armillary.graph.tango import tuned
from armillary.graph.tango.evidence import EXPERIMENTS
from armillary.graph.tango.graphs import Graph, joined
from armillary.graph.tango.peers import (
    Graff,
    Network,
    SparseFeatures,
    Swan,
    Wiring,
    count,
    make_core,
    make_network,
)

NAMES = {c.name for e in EXPERIMENTS for c in e.contenders}


@pytest.mark.parametrize(
    ("table", "depth", "inputs", "outputs"),
    [
        (tuned.TRANSFER, 16, 7, 5),
        (tuned.PROPERTIES, 8, 2, 1),
        (tuned.CITATION, 8, 1433, 7),
        (tuned.MOLECULES, 4, 23, 1),
    ],
)
def test_every_contender_has_our_number_of_parameters(table, depth, inputs, outputs):
    with torch.device("meta"):
        ours = count(Network(make_core("ours", 32, depth), inputs, 32, outputs, "node"))
    assert set(table) <= NAMES
    for name, setting in table.items():
        model = make_network(
            name, inputs, outputs, setting.depth or depth, parameters=ours, task="node",
            step=setting.step, share=setting.share, kind=setting.convolution,
        )  # fmt: skip
        # A width more or less of GPS's layers is a tenth of its parameters: it gets the more.
        assert -0.05 <= count(model) / ours - 1 <= (0.08 if name == "gps" else 0.05), name


def test_virtual_nodes_are_wired_as_pygs():
    from torch_geometric.data import Data
    from torch_geometric.transforms import VirtualNode

    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    data = VirtualNode()(Data(x=torch.randn(3, 2), edge_index=edges))
    found = Wiring(Graph(torch.randn(3, 2), edges)).virtual_edges
    assert sorted(found.T.tolist()) == sorted(data.edge_index.T.tolist())
    both = Wiring(joined([Graph(torch.randn(3, 2), edges)] * 2))
    assert int(both.virtual_edges.max()) == 7
    assert both.virtual.shape == (8, 8)


def test_a_shared_gps_layer_has_our_size_and_is_taken_again_and_again():
    for depth in (4, 8, 16):
        with torch.device("meta"):
            ours = count(Network(make_core("ours", 32, depth), 7, 32, 5, "node"))
        model = make_network("gps", 7, 5, depth, parameters=ours, task="node", share=True)
        assert abs(count(model) / ours - 1) <= 0.12, depth
    wiring = path()
    core = make_core("gps", 4, 3, share=True).eval()
    h = expected = torch.randn(4, 4)
    for _ in range(3):
        expected = core.layers[0](expected, wiring.operator.matrix, wiring.one_graph)
    torch.testing.assert_close(core(h, wiring), expected)


def path() -> Wiring:
    edges = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    return Wiring(Graph(torch.randn(4, 3), edges))


def test_swan_is_its_equation():
    wiring, h = path(), torch.randn(4, 5)
    core = Swan(5, depth=2, step=0.3, gamma=0.2, kappa=0.7)
    core.bias.data.normal_()
    a = wiring.operator.matrix.to_dense()
    adjacency = torch.tensor([[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0.0]])
    walk = adjacency / adjacency.sum(1, keepdim=True)
    expected = h
    for _ in range(2):
        inner = (
            expected @ (core.own - core.own.T - 0.2 * torch.eye(5))
            + a @ expected @ (core.neighbour - core.neighbour.T)
            + 0.7 * (walk - walk.T) @ expected @ (core.space + core.space.T)
            + core.bias
        )
        expected = expected + 0.3 * torch.tanh(inner)
    torch.testing.assert_close(core(h, wiring), expected)


def test_graff_descends_its_quadratic_energy():
    """E(H) = ½ (⟨H, HΩ⟩ − ⟨H, ÂHW⟩) + ⟨H, H⁰W̃⟩; a step is −τ∇E."""
    wiring = path()
    core = Graff(5, depth=1, step=0.1)
    core.omega.data.normal_()
    core.source.data.normal_()
    h = torch.randn(4, 5)
    a, w = wiring.operator.matrix.to_dense(), (core.weight + core.weight.T) / 2

    def energy(v):
        return ((v * v * core.omega).sum() - (v * (a @ v @ w)).sum()) / 2 + (
            v * h * core.source
        ).sum()

    (gradient,) = torch.autograd.grad(energy(v := h.clone().requires_grad_()), v)
    torch.testing.assert_close(core(h, wiring), h - 0.1 * gradient)


def test_sparse_features_are_the_dense_ones_with_gradients():
    dense = torch.tensor([[0, 2.0, 0], [1, 0, 3], [0, 0, 0], [0, 4, 0]])
    rows, columns = dense.nonzero().T
    features = SparseFeatures(rows, columns, dense[rows, columns], (4, 3))
    linear = torch.nn.Linear(3, 2)
    out = features.encode(linear, 0.0)
    torch.testing.assert_close(out, linear(dense))
    out.square().sum().backward()
    sparse = linear.weight.grad.clone()
    linear.weight.grad = None
    linear(dense).square().sum().backward()
    torch.testing.assert_close(sparse, linear.weight.grad)


def test_an_unknown_contender_is_told():
    with pytest.raises(ValueError, match="name='mlp' is no contender"):
        make_core("mlp", 4, 2)
