"""Profiles of layers against values known in closed form."""

from __future__ import annotations

import math

import pytest
import torch

from armillary.models import profile_layers


def linear(weight: list[list[float]]) -> torch.nn.Linear:
    layer = torch.nn.Linear(len(weight[0]), len(weight), bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weight))
    return layer


def test_outputs_and_gradients_of_a_chain_are_exact():
    model = torch.nn.Sequential(
        linear([[1.0, 0.0], [0.0, -1.0]]), torch.nn.ReLU(), linear([[2.0, 2.0]])
    )
    x = torch.tensor([[1.0, 1.0], [3.0, 2.0]])
    first, relu, last = profile_layers(model, lambda m: m(x).sum())
    assert (first.name, first.kind, relu.name) == ("0", "Linear", "1")
    assert first.mean == pytest.approx((1 - 1 + 3 - 2) / 4)
    assert first.rms == pytest.approx(math.sqrt((1 + 1 + 9 + 4) / 4))
    assert first.dead == 0
    assert relu.dead == 0.5
    assert last.gradient_rms == pytest.approx(1)
    assert relu.gradient_rms == pytest.approx(2)
    assert first.gradient_rms == pytest.approx(math.sqrt(2))  # only the first unit passes ReLU


def test_time_and_batch_are_both_samples():
    model = torch.nn.Sequential(torch.nn.ReLU())
    x = -torch.ones(4, 3, 2)
    x[2, 1, 0] = 1
    (profile,) = profile_layers(model, lambda m: m(x), sample_axes=2, gradients=False)
    assert profile.dead == 0.5
    assert math.isnan(profile.gradient_rms)


def test_a_shared_module_is_told_apart_by_its_calls_and_gradients_are_restored():
    shared = torch.nn.Linear(2, 2)
    shared.weight.grad = torch.full((2, 2), 7.0)

    class Twice(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = shared

        def forward(self, x):
            return self.layer(self.layer(x))

    rows = profile_layers(Twice(), lambda m: m(torch.ones(1, 2)).sum())
    assert [row.name for row in rows] == ["layer", "layer#2"]
    assert torch.equal(shared.weight.grad, torch.full((2, 2), 7.0))
    assert not shared._forward_hooks


def test_bad_runs_are_refused():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match="scalar"):
        profile_layers(model, lambda m: m(torch.ones(1, 2)))
    with pytest.raises(ValueError, match="no selected module"):
        profile_layers(model, lambda m: torch.zeros(()), select=lambda name, module: False)
