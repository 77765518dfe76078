"""The fused neurons against plain autograd, SpikingJelly and snnTorch."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
import torch

from armillary.neuro.spikeinit import LIF, AdaptiveLIF, SurrogateSpike
from armillary.neuro.spikeinit.neurons import surrogate_slope
from armillary.neuro.spikeinit.theory import slope_squared


def stepwise(x, neuron, spike, gain=None, shift=None):
    """The equation, a step at a time, with torch's own gradients and the reset detached."""
    v = torch.zeros_like(x[0])
    out = []
    for current in x:
        v = v + neuron.lam * current
        seen = v if gain is None else v * gain + shift
        s = spike(seen - neuron.theta)
        out.append(s)
        fired = s.detach()
        if neuron.reset == "hard":
            v = neuron.kappa * v * (1 - fired)
        elif neuron.reset == "soft":
            v = neuron.kappa * (v - neuron.theta * fired)
        else:
            v = neuron.kappa * v - neuron.theta * fired
    return torch.stack(out)


@pytest.mark.parametrize("reset", ["hard", "soft", "subtract"])
@pytest.mark.parametrize("surrogate", ["piecewise_exp", "atan", "sigmoid", "triangle"])
def test_the_fused_layer_is_the_stepwise_one(reset, surrogate):
    torch.manual_seed(0)
    x = (torch.randn(5, 3, 7, dtype=torch.float64) * 1.5).requires_grad_()
    weight = torch.randn(5, 3, 7, dtype=torch.float64)
    layer = LIF(0.6, 0.7, 0.5, 1.3, surrogate, reset)
    slow = stepwise(x, layer.neuron, SurrogateSpike(1.3, surrogate))
    (expected,) = torch.autograd.grad((slow * weight).sum(), x)
    fast = layer(x)
    (found,) = torch.autograd.grad((fast * weight).sum(), x)
    assert torch.equal(fast, slow)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_the_adaptive_layer_is_the_stepwise_one():
    torch.manual_seed(0)
    x = (torch.randn(3, 50, 2, dtype=torch.float64) * torch.tensor([3.0, 0.2])).requires_grad_()
    layer = AdaptiveLIF(2, base=1.0).double()
    with torch.no_grad():
        layer.gain.copy_(torch.tensor([1.2, 0.8]))
        layer.shift.copy_(torch.tensor([0.1, -0.2]))
    out = layer(x)
    weight = torch.randn_like(out)
    (out * weight).sum().backward()
    # α of a channel: base over the standard deviation of its membrane, at least θ/Φ⁻¹(.99).
    potentials, v = [], torch.zeros(50, 2, dtype=torch.float64)
    for t in range(3):
        v = v + 0.5 * x[t].detach()
        potentials.append(v)
        v = 0.5 * v * (1 - out[t].detach())
    std = torch.stack(potentials).std(dim=(0, 1), correction=0)
    assert std[1] < 0.5 / 2.3263 < std[0]
    alpha = 1.0 / std.clamp_min(0.5 / 2.3263478740408408)
    gain = layer.gain.detach().clone().requires_grad_()
    shift = layer.shift.detach().clone().requires_grad_()
    y = x.detach().clone().requires_grad_()
    slow = stepwise(y, layer.neuron, SurrogateSpike(alpha), gain, shift)
    (slow * weight).sum().backward()
    assert torch.equal(slow, out)
    for fast, expected in ((x, y), (layer.gain, gain), (layer.shift, shift)):
        torch.testing.assert_close(fast.grad, expected.grad, rtol=1e-4, atol=1e-5)


def test_spikes_and_gradients_are_spikingjellys():
    jelly = pytest.importorskip("spikingjelly.activation_based")
    from spikingjelly.activation_based import neuron, surrogate

    assert jelly
    torch.manual_seed(0)
    x = torch.randn(4, 8, 6).mul(2).requires_grad_()
    node = neuron.LIFNode(
        tau=2.0,
        v_threshold=0.5,
        surrogate_function=surrogate.PiecewiseExp(alpha=4.0),
        detach_reset=True,
        step_mode="m",
    )
    theirs = node(x)
    (expected,) = torch.autograd.grad(theirs.square().sum(), x)
    ours = LIF(0.5, 0.5, 0.5, alpha=2.0)(x)
    (found,) = torch.autograd.grad(ours.square().sum(), x)
    assert torch.equal(theirs, ours)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("surrogate", ["piecewise_exp", "atan", "sigmoid", "triangle"])
def test_slopes_are_those_of_the_theory_and_have_area_one(surrogate):
    u = torch.linspace(-400, 400, 2_000_001, dtype=torch.float64)
    slope = surrogate_slope(surrogate, 1.7, u)
    expected = torch.from_numpy(slope_squared(surrogate, 1.7, u.numpy())).sqrt()
    torch.testing.assert_close(slope, expected)
    assert torch.trapezoid(slope, u).item() == pytest.approx(1, abs=2e-3)


def test_half_precision_keeps_the_tail_of_the_slope():
    x = torch.full((1, 1, 1), -2.0, dtype=torch.bfloat16, requires_grad=True)
    LIF(0.5, 0.5, 0.5, alpha=2.0)(x).sum().backward()
    assert x.grad is not None
    assert x.grad.dtype == torch.bfloat16
    assert x.grad.item() == pytest.approx(0.5 * 2 * 2.718281828 ** (-4 * 1.5), rel=0.01)
