"""The flow: against a slow twin, and what must hold in every step."""

from __future__ import annotations

import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.evidence.shapes import Case, Cell
from armillary.graph.tango import EnergyModule, LogCoshEnergy, Propagation, TangoConv, evidence_flow
from armillary.graph.tango.graphs import Graph, joined
from armillary.graph.tango.stability import Motion


def ring_edges(n: int) -> torch.Tensor:
    nodes = torch.arange(n)
    one_way = torch.stack([nodes, (nodes + 1) % n])
    return torch.cat([one_way, one_way.flip(0)], 1)


def plain_step(conv: TangoConv, x: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    """One Euler step on one graph, line by line from the equations, with autograd's gradient."""
    step = conv.steps[0]
    h = x.detach().requires_grad_()
    z = h @ step.energy.weight_self + a @ h @ step.energy.weight_neighbour + step.energy.bias
    v = torch.log(torch.cosh(z)).sum() + step.energy.rho / 2 * h.square().sum()
    (g,) = torch.autograd.grad(v, h)
    m = torch.tanh(a @ h @ step.backbone.weight + step.backbone.bias)
    if conv.projection == "graph":
        t = m - (m * g).sum() / (g.square().sum() + 1e-16 * g.numel()) * g
    elif conv.projection == "node":
        t = torch.stack([
            m[i] - m[i] @ g[i] / (g[i] @ g[i] + 1e-16 * g.shape[1]) * g[i] for i in range(len(g))
        ])  # fmt: skip
    else:
        t = m
    alpha = torch.log1p(torch.exp(step.raw_alpha))
    return (x + conv.step * (-alpha * g + step.raw_beta * t)).detach()


@pytest.mark.parametrize("projection", ["graph", "node", "none"])
def test_steps_are_the_equations(directed, projection):
    conv = TangoConv(6, num_steps=3, stable="none", projection=projection).double()
    a = Propagation(directed.edge_index, 7, dtype=torch.float64).matrix.to_dense()
    x = expected = directed.x.double()
    for _ in range(3):
        expected = plain_step(conv, expected, a)
    torch.testing.assert_close(conv(x, directed.edge_index), expected)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    stable=st.sampled_from(["correct", "clip"]),
    scale=st.sampled_from([1e-3, 1.0, 30.0]),
    rho=st.sampled_from([0.0, 1e-3]),
    beta=st.sampled_from([1.0, -3.0]),
)
def test_energy_never_rises(seed, stable, scale, rho, beta):
    generator = torch.Generator().manual_seed(seed)
    n = int(torch.randint(2, 12, (), generator=generator))
    edges = torch.randint(0, n, (2, 3 * n), generator=generator)
    x = scale * torch.randn(n, 5, generator=generator)
    conv = TangoConv(5, 12, stable=stable, rho=rho, beta=beta)
    with torch.no_grad():
        for p in conv.steps[0].energy.parameters():
            p.copy_(2 * torch.randn(p.shape, generator=generator))
        _, trace = conv(x, edges, return_trace=True)
    assert not trace.rising.any()
    assert (trace.change <= 1e-6 * trace.energy[:-1].abs()).all()
    assert float(trace.cosine.abs().max()) <= 1e-5


def test_plain_euler_rises_which_is_why_there_is_a_correction(ring):
    conv = TangoConv(32, 200, stable="none")
    _, trace = conv(torch.randn(10, 32), ring.edge_index, return_trace=True)
    assert trace.rising.float().mean() > 0.5


def test_first_order_change_of_energy_is_the_descent(ring):
    """dV/dh at h = 0 is −α‖G‖²: the tangent part keeps V to first order."""
    x, slopes = ring.x.double(), []
    for h in (1e-5, 1e-6):
        conv = TangoConv(6, 1, stable="none", step=h).double()
        torch.manual_seed(1)
        conv.reset_parameters()
        _, trace = conv(x, ring.edge_index, return_trace=True)
        slopes.append(float(trace.change[0, 0]) / h)
    assert slopes[1] == pytest.approx(-0.05 * float(trace.grad_norm[0, 0]) ** 2, rel=1e-4)


def test_a_batch_flows_as_its_graphs_do():
    graphs = [Graph(torch.randn(n, 6), ring_edges(n)) for n in (4, 7, 5)]
    conv = TangoConv(6, 6)
    batch = joined(graphs)
    found = conv(batch.x, batch.edge_index, batch=batch.batch)
    apart = torch.cat([conv(g.x, g.edge_index) for g in graphs])
    torch.testing.assert_close(found, apart, rtol=1e-4, atol=1e-5)
    energies = conv.energy(batch.x, batch.edge_index, batch.batch)
    expected = torch.cat([conv.energy(g.x, g.edge_index) for g in graphs])
    torch.testing.assert_close(energies, expected)


def test_flow_is_equivariant_to_the_order_of_nodes(directed):
    conv = TangoConv(6, 5).double()
    x, order = directed.x.double(), torch.tensor([3, 0, 6, 1, 5, 2, 4])
    place = torch.argsort(order)
    moved = conv(x[order], place[directed.edge_index])
    torch.testing.assert_close(moved, conv(x, directed.edge_index)[order])


@pytest.mark.parametrize(
    ("batch", "error", "said"),
    [
        (torch.tensor([-1, 0, 0]), ValueError, "batch names graph -1"),
        (torch.zeros(3), TypeError, "batch holds torch.float32"),
        (torch.zeros(3, dtype=torch.bool), TypeError, "batch holds torch.bool"),
    ],
)
def test_a_batch_that_names_no_graphs_is_refused(batch, error, said):
    with pytest.raises(error, match=said):
        TangoConv(4, 2)(torch.ones(3, 4), torch.tensor([[0, 1], [1, 2]]), batch=batch)


def test_an_unsorted_batch_is_sorted_with_a_warning():
    graphs = [Graph(torch.randn(n, 6), ring_edges(n)) for n in (4, 5)]
    both, conv = joined(graphs), TangoConv(6, 3)
    expected = conv(both.x, both.edge_index, batch=both.batch)
    order = torch.tensor([4, 0, 5, 1, 6, 2, 7, 3, 8])
    place = torch.argsort(order)
    with pytest.warns(UserWarning, match="batch is not sorted"):
        found = conv(both.x[order], place[both.edge_index], batch=both.batch[order])
    torch.testing.assert_close(found, expected[order], rtol=1e-4, atol=1e-5)


def test_where_the_gradient_vanishes_the_tangent_is_the_message():
    """x = 0 and b = 0: G = 0, so that T = M and H moves by hβM."""
    conv = TangoConv(4, 1, stable="none")
    conv.steps[0].backbone.bias.data.normal_()
    found = conv(torch.zeros(3, 4), ring_edges(3))
    expected = 0.5 * torch.tanh(conv.steps[0].backbone.bias).expand(3, 4)
    torch.testing.assert_close(found, expected)


def test_no_edges_is_a_flow_without_neighbours():
    """Then Â = I, and a node's path depends on others through the graph's scalar alone."""
    conv = TangoConv(4, 3, projection="node", stable="none")
    nowhere = torch.empty(2, 0, dtype=torch.long)
    x = torch.randn(5, 4)
    together = conv(x, nowhere)
    alone = torch.cat([conv(x[i : i + 1], nowhere) for i in range(5)])
    torch.testing.assert_close(together, alone)


def test_switched_off_parts(ring):
    still = TangoConv(6, 4, alpha=0.0, beta=0.0)
    torch.testing.assert_close(still(ring.x, ring.edge_index), ring.x)
    descent = TangoConv(6, 4, beta=0.0)
    _, trace = descent(ring.x, ring.edge_index, return_trace=True)
    assert (trace.tangent_norm == 0).all()
    assert (trace.change < 0).all()
    learnt = {name for name, _ in descent.named_parameters()}
    assert "steps.0.raw_alpha" in learnt
    assert "steps.0.raw_beta" not in learnt


def test_rates_start_where_they_are_asked_to():
    conv = TangoConv(4, alpha=0.2, beta=-0.7)
    assert float(conv.steps[0].alpha(torch.zeros(1)).detach()) == pytest.approx(0.2)
    assert float(conv.steps[0].beta().detach()) == pytest.approx(-0.7)


def test_checkpointing_changes_neither_values_nor_gradients(ring):
    plain = TangoConv(6, 4).double()
    saving = TangoConv(6, 4, checkpointing=True).double()
    saving.load_state_dict(plain.state_dict())
    outs = [c(ring.x.double(), ring.edge_index) for c in (plain, saving)]
    torch.testing.assert_close(outs[1], outs[0])
    for out in outs:
        out.square().sum().backward()
    for a, b in zip(plain.parameters(), saving.parameters(), strict=True):
        torch.testing.assert_close(b.grad, a.grad)


def test_gradients_through_the_correction_take_its_length_as_given(ring, monkeypatch):
    """Autograd's gradient is that of the steps with each return's length frozen where it was."""
    conv = TangoConv(6, 2).double()
    x = ring.x.double().requires_grad_()
    lengths, find = [], Motion._length

    def noted(self, ray, *rest):
        k, end = find(self, ray, *rest)
        lengths.append(k)
        return k, end

    monkeypatch.setattr(Motion, "_length", noted)
    (found,) = torch.autograd.grad(conv(x, ring.edge_index).sin().sum(), x)
    assert len(lengths) == 2
    assert all(float(k) > 0 for k in lengths)

    def frozen(v):
        kept = iter(lengths)

        def given(self, ray, *rest):
            k = next(kept)
            return k, ray.point(-k)

        monkeypatch.setattr(Motion, "_length", given)
        return conv(v, ring.edge_index).sin().sum()

    with torch.no_grad():
        for place in ((0, 0), (3, 2), (9, 5)):
            shift = torch.zeros_like(x)
            shift[place] = 1e-6
            slope = float(frozen(x + shift) - frozen(x - shift)) / 2e-6
            assert slope == pytest.approx(float(found[place]), rel=1e-6, abs=1e-9)


def test_a_custom_energy_is_trained_through_the_correction(ring):
    """What is compared without a gradient must not take it from what is descended."""
    conv = TangoConv(6, 4, energy=Quartic())
    out, trace = conv(ring.x, ring.edge_index, return_trace=True)
    assert not trace.rising.any()
    out.square().sum().backward()
    grad = conv.steps[0].energy.weight.grad
    assert grad is not None
    assert float(grad.abs().min()) > 0


class Quartic(EnergyModule):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(6))

    def forward(self, x, operator, segments):
        z = (x + operator @ x) * self.weight
        return segments.sum(z.square() / 2 + z.pow(4) / 12)


def test_an_abstract_energy_is_not_made():
    with pytest.raises(TypeError, match="abstract"):
        EnergyModule()


def test_graphs_between_target_and_start_are_left_there(ring):
    """Newton's repeats are for graphs above their start; the page says so."""
    _, trace = TangoConv(6, 40).double()(ring.x.double(), ring.edge_index, return_trace=True)
    alpha = 0.05
    target = trace.energy[:-1] - 0.5 * alpha * trace.grad_norm**2 / 2
    between = (trace.energy[1:] > target) & (trace.energy[1:] <= trace.energy[:-1])
    assert between.any()
    assert trace.repairs.halvings == 0


def test_features_of_edges_that_nothing_reads_are_told_once(ring):
    nn = pytest.importorskip("torch_geometric.nn")
    attributes = torch.randn(20, 3)
    for conv, name in ((TangoConv(6, 2), "gcn"), (TangoConv(6, 2, backbone="gin"), "GINConv")):
        with pytest.warns(UserWarning, match=f"edge_attr is not used: the backbone {name}"):
            conv(ring.x, ring.edge_index, attributes)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            conv(ring.x, ring.edge_index, attributes)
    reader = TangoConv(6, 2, backbone=nn.GATv2Conv(6, 6, edge_dim=3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = reader(ring.x, ring.edge_index, attributes)
    assert not torch.equal(first, reader(ring.x, ring.edge_index, -attributes))


def test_clip_asks_for_norms_once_a_flow(ring, monkeypatch):
    asked, power = [], Propagation._power
    monkeypatch.setattr(
        Propagation, "_power", lambda self, n: asked.append("operator") or power(self, n)
    )
    curvature = LogCoshEnergy.curvature
    monkeypatch.setattr(
        LogCoshEnergy, "curvature", lambda self, a: asked.append("weights") or curvature(self, a)
    )
    operator, conv = Propagation(ring.edge_index, 10), TangoConv(6, 5, stable="clip")
    for _ in range(2):
        conv(ring.x, operator)
    assert sorted(asked) == ["operator", "weights", "weights"]
    assert operator.T.norm() == operator.norm()
    assert len(asked) == 3


def test_graphs_without_nodes_at_the_end_are_in_the_trace(ring):
    batch = torch.zeros(10, dtype=torch.long)
    _, trace = TangoConv(6, 2)(
        ring.x, ring.edge_index, batch=batch, num_graphs=3, return_trace=True
    )
    assert trace.energy.shape == (3, 3)
    assert (trace.energy[:, 1:] == 0).all()
    assert not trace.rising.any()
    with pytest.raises(ValueError, match="num_graphs=1: batch names 2 graphs"):
        TangoConv(6, 2)(ring.x, ring.edge_index, batch=batch + torch.arange(10) // 5, num_graphs=1)


def test_steps_with_weights_of_their_own(ring):
    conv = TangoConv(6, 3, share_weights=False)
    assert len(conv.steps) == 3
    _, trace = conv(ring.x, ring.edge_index, return_trace=True)
    assert not trace.rising.any()
    assert trace.energy.shape == (4, 1)


def test_bf16_autocast_keeps_the_statement(ring):
    conv = TangoConv(6, 10)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        _, trace = conv(ring.x, ring.edge_index, return_trace=True)
    assert trace.energy.dtype == torch.float32
    assert not trace.rising.any()


@pytest.mark.parametrize("backbone", ["gin", "gatv2", "gated", "gps"])
def test_backbones_of_pyg_keep_the_statement(ring, backbone):
    pytest.importorskip("torch_geometric")
    conv = TangoConv(6, 5, backbone=backbone)
    out, trace = conv(ring.x, ring.edge_index, return_trace=True)
    assert not trace.rising.any()
    assert float(trace.cosine.abs().max()) <= 1e-5
    out.sum().backward()
    grads = [p.grad for p in conv.steps[0].backbone.parameters()]
    assert any(g is not None and float(g.abs().sum()) > 0 for g in grads)


def test_a_convolution_of_pyg_is_what_our_backbone_computes(directed):
    nn = pytest.importorskip("torch_geometric.nn")
    ours = TangoConv(6, 3)
    theirs = TangoConv(6, 3, backbone=nn.GCNConv(6, 6))
    theirs.steps[0].energy.load_state_dict(ours.steps[0].energy.state_dict())
    module = theirs.steps[0].backbone.module
    with torch.no_grad():
        module.lin.weight.copy_(ours.steps[0].backbone.weight.T)
        module.bias.copy_(ours.steps[0].backbone.bias)
    found = theirs(directed.x, directed.edge_index)
    torch.testing.assert_close(found, ours(directed.x, directed.edge_index), rtol=1e-4, atol=1e-5)


def test_batch_norm_in_a_backbone_is_warned_of():
    nn = pytest.importorskip("torch_geometric.nn")
    with pytest.warns(UserWarning, match="holds a BatchNorm"):
        TangoConv(4, backbone=nn.GPSConv(4, nn.GCNConv(4, 4)))


class Narrow(torch.nn.Module):
    def forward(self, x, edge_index):
        return x[:, :1]


def test_a_backbone_that_changes_the_shape_is_told(ring):
    with pytest.raises(ValueError, match=r"Narrow gave \(10, 1\); it must keep"):
        TangoConv(6, backbone=Narrow())(ring.x, ring.edge_index)


def test_bad_input_is_told(ring):
    conv = TangoConv(6)
    with pytest.raises(ValueError, match="x has 3 channels, the layer has 6"):
        conv(torch.randn(10, 3), ring.edge_index)
    with pytest.raises(ValueError, match="names node 9, but x has 4 rows"):
        conv(torch.randn(4, 6), ring.edge_index)
    with pytest.raises(ValueError, match=r"batch has the shape \(3,\), x has 10 rows"):
        conv(ring.x, ring.edge_index, batch=torch.zeros(3, dtype=torch.long))
    broken = ring.x.clone()
    broken[4, 2] = torch.nan
    with pytest.raises(ValueError, match="not finite at node 4"):
        conv(broken, ring.edge_index)
    with pytest.raises(TypeError, match=r"x holds torch.int64"):
        conv(ring.x.long(), ring.edge_index)
    operator = Propagation(ring.edge_index, 10)
    with pytest.raises(ValueError, match="of 10 nodes, x has 4 rows"):
        conv(torch.randn(4, 6), operator)
    with pytest.raises(ValueError, match="edge_weight is -1 at edge 0"):
        conv(ring.x, ring.edge_index, edge_weight=-torch.ones(20))


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"num_steps": 0}, "num_steps=0"),
        ({"stable": "maybe"}, "stable='maybe'"),
        ({"projection": "edge"}, "projection='edge'"),
        ({"alpha": -0.1}, "alpha=-0.1"),
        ({"step": 0.0}, "step=0.0"),
        ({"rho": -1.0}, "rho=-1.0"),
        ({"dropout": 1.0}, "dropout=1.0"),
        ({"backbone": "mlp"}, "backbone='mlp'"),
    ],
)
def test_bad_settings_are_told(setting, says):
    with pytest.raises(ValueError, match=says):
        TangoConv(4, **setting)


def test_an_energy_of_another_kind_is_told():
    with pytest.raises(TypeError, match="give 'logcosh' or an EnergyModule"):
        TangoConv(4, energy="quadratic")


def test_drawing_anew_is_repeatable():
    conv = TangoConv(4)
    torch.manual_seed(5)
    conv.reset_parameters()
    first = {k: v.clone() for k, v in conv.state_dict().items()}
    torch.manual_seed(5)
    conv.reset_parameters()
    for name, value in conv.state_dict().items():
        torch.testing.assert_close(value, first[name], rtol=0, atol=0)


@pytest.mark.slow
def test_compiled_with_dynamic_shapes_gives_the_same(ring):
    conv = TangoConv(6, 1)
    compiled = torch.compile(conv, dynamic=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n in (10, 13):
            x, edges = torch.randn(n, 6), ring_edges(n)
            torch.testing.assert_close(compiled(x, edges), conv(x, edges), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("scale", [1e-3, 1e-1])
def test_statements_hold_for_small_features(scale):
    torch.manual_seed(1)
    ring = torch.arange(20)
    edges = torch.stack([torch.cat([ring, ring.roll(-1)]), torch.cat([ring.roll(-1), ring])])
    conv = TangoConv(16, num_steps=30)
    _, trace = conv(scale * torch.randn(20, 16), edges, return_trace=True)
    assert not trace.rising.any()
    assert (trace.energy >= 0).all()
    assert trace.cosine.abs().max() < 1e-5


def test_a_batch_of_graphs_never_climbs_by_the_rounding_of_what_was_accepted():
    """Energies of a batch are summed anew where one of its graphs takes another step."""
    cell = Cell(Case("float32", x={"bits": 32}), 8, "full")
    graph = evidence_flow.many_graphs(cell)
    torch.manual_seed(8)
    conv = TangoConv(evidence_flow.CHANNELS, 200)
    with torch.no_grad():
        _, trace = conv(graph.x, graph.edge_index, None, graph.batch, return_trace=True)
    assert not trace.rising.any()
    assert trace.repairs.descents > 0  # the cases that took the last resort


def test_features_that_are_no_tensor_are_told(ring):
    with pytest.raises(TypeError, match="x is a ndarray"):
        TangoConv(8)(ring.x.numpy(), ring.edge_index)
