"""The energy, its gradient, and rays along it."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from armillary.graph.tango import (
    EnergyModule,
    EnergyNotDifferentiable,
    LogCoshEnergy,
    Propagation,
    Segments,
    TangoConv,
)
from armillary.graph.tango.energy import _LogCoshRows

DOUBLE = torch.float64


@pytest.fixture
def place(directed):
    """Two directed graphs, of three and four nodes."""
    edges = torch.tensor([[0, 1, 2, 3, 3, 4, 3, 3], [1, 2, 0, 4, 3, 5, 5, 5]])
    operator = Propagation(edges, 7, dtype=DOUBLE)
    return directed.x.double(), operator, Segments(7, torch.tensor([0, 0, 0, 1, 1, 1, 1]))


def test_energy_is_the_formula_graph_by_graph(place):
    x, operator, segments = place
    module = LogCoshEnergy(6, rho=0.1).double()
    module.bias.data.normal_()
    z = (
        x @ module.weight_self
        + operator.matrix.to_dense() @ x @ module.weight_neighbour
        + module.bias
    )
    nodes = np.log(np.cosh(z.detach().numpy())).sum(1) + 0.05 * x.square().sum(1).numpy()
    expected = [nodes[:3].sum(), nodes[3:].sum()]
    assert module(x, operator, segments).tolist() == pytest.approx(expected)


def test_closed_form_gradient_is_that_of_autograd_on_a_directed_graph(place):
    x, operator, segments = place
    module = LogCoshEnergy(6, rho=0.3).double()
    point = module.at(x.requires_grad_(), operator, segments)
    (expected,) = torch.autograd.grad(point.energy.sum(), x)
    torch.testing.assert_close(point.gradient, expected)


def test_energy_is_differentiable_twice(place):
    x, operator, segments = place
    module = LogCoshEnergy(6).double()
    assert torch.autograd.gradgradcheck(
        lambda v: module.at(v, operator, segments).energy, x.requires_grad_()
    )


@pytest.mark.parametrize("channels", [5, 64, 200])
def test_log_cosh_is_stable_and_right_for_any_size(channels):
    z = torch.linspace(-300, 300, 7 * channels, dtype=DOUBLE).reshape(7, channels)
    module = LogCoshEnergy(channels, rho=0.0)
    with torch.no_grad():
        module.weight_self.copy_(torch.eye(channels))
        module.weight_neighbour.zero_()
    lonely = Propagation(torch.empty(2, 0, dtype=torch.long), 7)
    expected = (torch.logaddexp(z, -z) - np.log(2)).sum()
    found = module(z.float(), lonely, Segments(7)).detach()
    assert float(found) == pytest.approx(float(expected), rel=1e-6)


@pytest.mark.parametrize("size", [1e-4, 1e-2, 0.1, 0.3, 1.0, 30.0])
@pytest.mark.parametrize("mixed", [False, True])
def test_log_cosh_keeps_its_digits_at_small_energies(size, mixed):
    z = size * torch.randn(200, 32, dtype=DOUBLE, generator=torch.Generator().manual_seed(0))
    if mixed:
        z[::2] *= 1e-3  # rows near 0 among others
    z = z.float()
    exact = torch.log1p(torch.expm1(z.double().abs()).square() / (2 * z.double().abs().exp()))
    found = _LogCoshRows.apply(z, torch.tanh(z))
    assert float(found.sum()) == pytest.approx(float(exact.sum()), rel=1e-6)


def test_a_ray_gives_the_points_that_direct_evaluation_gives(place):
    x, operator, segments = place
    module = LogCoshEnergy(6, rho=0.1).double()
    start = module.at(x, operator, segments)
    direction = torch.randn_like(x)
    k = torch.tensor([0.7, -0.2], dtype=DOUBLE)
    ray = start.ray(direction)
    found = ray.point(k)
    direct = module.at(x + segments.spread(k) * direction, operator, segments)
    torch.testing.assert_close(found.energy, direct.energy)
    torch.testing.assert_close(found.gradient, direct.gradient)
    torch.testing.assert_close(ray.slope(found), segments.dot(direct.gradient, direction))


def test_curvature_along_a_ray_is_the_second_difference(place):
    x, operator, segments = place
    module = LogCoshEnergy(6, rho=0.1).double()
    ray = module.at(x, operator, segments).ray(torch.randn_like(x))
    h = 1e-4
    at = [ray.point(torch.full((2,), s * h, dtype=DOUBLE)).energy for s in (-1, 0, 1)]
    expected = (at[0] - 2 * at[1] + at[2]) / h**2
    torch.testing.assert_close(ray.curvature(), expected, rtol=1e-5, atol=1e-5)


def test_the_bound_on_curvature_holds(place):
    x, operator, segments = place
    module = LogCoshEnergy(6, rho=0.1).double()
    hessian = torch.autograd.functional.hessian(
        lambda v: module(v.reshape(7, 6), operator, segments).sum(), x.reshape(-1)
    )
    largest = float(torch.linalg.eigvalsh(hessian).abs().max())
    bound = float(module.curvature(operator))
    assert largest <= bound * (1 + 1e-6)
    # At Z = 0 with one channel and no edges the bound is reached.
    tight = LogCoshEnergy(1, rho=0.0).double()
    lonely = Propagation(torch.empty(2, 0, dtype=torch.long), 1, dtype=DOUBLE)
    total = tight.weight_self.item() + tight.weight_neighbour.item()
    (bent,) = torch.autograd.functional.hessian(
        lambda v: tight(v.reshape(1, 1), lonely, Segments(1)).sum(), torch.zeros(1, dtype=DOUBLE)
    )
    assert float(bent) == pytest.approx(total**2)
    assert total**2 <= float(tight.curvature(lonely)) * (1 + 1e-9)


class LogCoshByHand(EnergyModule):
    """The closed form's energy, left to autograd."""

    def __init__(self, like: LogCoshEnergy) -> None:
        super().__init__()
        self.like = like

    def forward(self, x, operator, segments):
        z = x @ self.like.weight_self + (operator @ x) @ self.like.weight_neighbour + self.like.bias
        level = segments.sum(torch.logaddexp(z, -z) - np.log(2))
        return level + self.like.rho / 2 * segments.sum(x.square())


def test_a_custom_energy_flows_as_the_closed_form_does(ring):
    closed = TangoConv(6, num_steps=4).double()
    custom = TangoConv(6, num_steps=4, energy=LogCoshByHand(LogCoshEnergy(6))).double()
    custom.steps[0].energy.like.load_state_dict(closed.steps[0].energy.state_dict())
    custom.steps[0].backbone.load_state_dict(closed.steps[0].backbone.state_dict())
    x = ring.x.double()
    # The closed form aims by the parabola and this one by Newton's step: levels agree, not paths,
    # unless no correction is asked for.
    closed.stable = custom.stable = "none"
    torch.testing.assert_close(custom(x, ring.edge_index), closed(x, ring.edge_index))
    out = custom(x.requires_grad_(), ring.edge_index)
    out.square().sum().backward()
    assert float(custom.steps[0].energy.like.weight_self.grad.norm()) > 0
    custom.stable = "correct"
    assert not custom(x, ring.edge_index, return_trace=True)[1].rising.any()


class Rounded(EnergyModule):
    def forward(self, x, operator, segments):
        return segments.sum((x > 0).to(x.dtype))


class Elsewhere(EnergyModule):
    def forward(self, x, operator, segments):
        return torch.zeros(segments.num_graphs)


class Misshapen(EnergyModule):
    def forward(self, x, operator, segments):
        return x.square()


def test_an_energy_without_gradient_names_the_operation(ring):
    with pytest.raises(EnergyNotDifferentiable, match="lost in gt"):
        TangoConv(6, energy=Rounded())(ring.x, ring.edge_index)
    with pytest.raises(EnergyNotDifferentiable, match="does not read x"):
        TangoConv(6, energy=Elsewhere())(ring.x, ring.edge_index)
    with pytest.raises(ValueError, match=r"it must be \(1,\): one a graph"):
        TangoConv(6, energy=Misshapen())(ring.x, ring.edge_index)


def test_clip_needs_a_bound_and_a_tangent():
    with pytest.raises(ValueError, match="Rounded a method curvature"):
        TangoConv(6, energy=Rounded(), stable="clip")
    with pytest.raises(ValueError, match="projection='none' leaves none"):
        TangoConv(6, projection="none", stable="clip")


@pytest.mark.parametrize("scale", [1e-4, 1e-2, 0.2, 0.3, 5.0])
def test_energy_of_small_features_keeps_its_digits(scale):
    torch.manual_seed(0)
    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    x = scale * torch.randn(3, 8)
    energy = LogCoshEnergy(8)
    operator, segments = Propagation(edges, 3), Segments(3, None)
    found = float(energy(x, operator, segments).detach())
    exact = copy.deepcopy(energy).double()
    wanted = float(exact(x.double(), Propagation(edges, 3, None, torch.float64), segments).detach())
    assert found == pytest.approx(wanted, rel=3e-6)
    z = exact.linear(x.double(), (Propagation(edges, 3, None, torch.float64) @ x.double()))
    plain = torch.log(torch.cosh(z)).sum() + exact.rho / 2 * x.double().square().sum()
    assert wanted == pytest.approx(float(plain.detach()), rel=1e-7)
