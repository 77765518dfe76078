"""Which neuron follows which layer, in networks whose graph hides it."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
import torch
from torch import nn

from armillary.neuro.spikeinit import (
    LIF,
    Neuron,
    NormalisationFound,
    UnsupportedNeuron,
    calibrate,
    depth_profile,
    init_,
    solve,
)
from armillary.neuro.spikeinit.models import Parts


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_a_neuron_that_serves_several_layers_follows_all_of_them(rows):
    neuron = LIF()
    layers = [part for _ in range(5) for part in (nn.Linear(64, 64), neuron)]
    model = nn.Sequential(*layers)
    report = init_(model, sample=rows.expand(4, -1, -1), generator=generator())
    assert report.untouched == ()
    assert [layer.role for layer in report.layers] == ["first"] + 4 * ["hidden"]
    assert report.depth == 5
    assert 0.05 < model(rows.expand(4, -1, -1)).mean().item() < 0.2


class Residual(nn.Module):
    """A stem and a branch whose output is a view, summed out of place or in place."""

    def __init__(self, kind: str, neuron: nn.Module | None = None) -> None:
        super().__init__()
        parts, self.kind = Parts(), kind
        self.stem, self.c1, self.c2 = parts.conv(1, 8), parts.conv(8, 8), parts.conv(8, 8)
        self.n1, self.n2, self.n3 = (neuron or LIF() for _ in range(3))
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = self.stem(x.expand(4, *x.shape))
        out = self.c2(self.n2(self.c1(self.n1(kept))))
        if self.kind == "in place":
            out += kept
        elif self.kind == "into the trunk":
            kept = kept.clone()
            kept += out
            out = kept
        elif self.kind == "assigned":
            out[:, :, :4] = kept[:, :, :4]
        else:
            out = out + kept
        return self.head(self.n3(out).mean((-1, -2)))


@pytest.mark.parametrize("kind", ["out of place", "in place", "into the trunk"])
@pytest.mark.parametrize("shared", [False, True])
def test_branches_are_found_however_they_are_summed(kind, shared):
    images = torch.randn(16, 1, 8, 8, generator=generator())
    model = Residual(kind, LIF() if shared else None)
    report = init_(model, sample=images, generator=generator())
    roles = {layer.name: layer.role for layer in report.layers}
    assert roles == {"stem": "first", "c1": "hidden", "c2": "branch", "head": "classifier"}


def test_channels_that_are_assigned_are_no_sum():
    images = torch.randn(16, 1, 8, 8, generator=generator())
    report = init_(Residual("assigned"), sample=images, generator=generator())
    assert {layer.name: layer.role for layer in report.layers}["c2"] == "hidden"


@pytest.mark.parametrize("constants", [{"beta": 0.5}, {"R": 1, "C": 2}, {"R": 5, "C": 0.1}])
def test_lapicque_is_read_as_it_moves(constants):
    """Its own step: the gain after an input of 1, the leak after none."""
    snn = pytest.importorskip("snntorch")
    from armillary.neuro.spikeinit.adapters import recognise

    step = {"time_step": 0.05} if constants.get("R") == 5 else {}
    neuron = snn.Lapicque(threshold=1e9, reset_mechanism="zero", **constants, **step)
    found = recognise("x", neuron)
    assert found is not None
    _, first = neuron(torch.ones(1), torch.zeros(1))
    _, second = neuron(torch.zeros(1), first)
    assert found.constants.lam == pytest.approx(float(first), rel=1e-5)
    assert found.constants.kappa == pytest.approx(float(second / first), rel=1e-5)


@pytest.mark.parametrize("flat", [False, True])
def test_a_layer_before_the_repeat_over_time_sees_static_data(rates, flat):
    class Repeated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.neuron = nn.Linear(64, 256, bias=False), LIF()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if flat:  # repeated before the layer, time and batch in one axis
                return self.neuron(self.layer(x.repeat(4, 1)).unflatten(0, (4, -1)))
            return self.neuron(self.layer(x).unsqueeze(0).repeat(4, 1, 1))

    data = torch.randn(512, 64, generator=generator())
    model = Repeated()
    report = init_(model, sample=data, generator=generator())
    assert "static" in report.layers[0].note
    assert rates(model, data) == pytest.approx([0.1], rel=0.2)


def test_normalised_data_are_data(rows, rates):
    model = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 256), LIF())
    report = init_(model, sample=rows.expand(4, -1, -1), generator=generator())
    assert report.layers[0].role == "first"
    assert rates(model, rows.expand(4, -1, -1)) == pytest.approx([0.1], rel=0.2)


@pytest.mark.parametrize("norm", [nn.RMSNorm(16), nn.InstanceNorm1d(4)])
def test_rms_and_instance_norms_are_norms(rows, norm):
    model = nn.Sequential(nn.Linear(64, 16), norm, LIF())
    with pytest.warns(NormalisationFound):
        report = init_(model, sample=rows.view(64, 4, 64))
    assert report.untouched == ("0",)


def test_spikingjellys_neurons_of_other_lineages_are_refused(rows):
    neuron = pytest.importorskip("spikingjelly.activation_based.neuron")
    for other in (neuron.PSN(T=4), neuron.GatedLIFNode(T=4)):
        model = nn.Sequential(nn.Linear(64, 16), LIF(), nn.Linear(16, 16), other)
        with pytest.raises(UnsupportedNeuron, match=type(other).__name__):
            init_(model, sample=rows.expand(4, -1, -1))


def test_weight_layers_in_a_row_share_one_scale(rows, rates):
    model = nn.Sequential(
        nn.Linear(64, 256), nn.Linear(256, 256), LIF(),
        nn.Linear(256, 256), nn.Linear(256, 256), LIF(),
    )  # fmt: skip
    data = rows.expand(4, -1, -1)
    report = init_(model, sample=data, generator=generator())
    assert [layer.role for layer in report.layers] == ["linear", "first", "linear", "hidden"]
    assert report.layers[3].sigma == solve().sigma
    assert all(0.06 < rate < 0.16 for rate in rates(model, data))


class Step(nn.Module):
    """A neuron of one's own that is called once a time step."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.v = self.v + 0.5 * x
        soft = torch.sigmoid(4 * (self.v - 0.5))
        spikes = soft + ((self.v >= 0.5).float() - soft).detach()
        self.v = 0.5 * self.v * (1 - spikes.detach())
        return spikes


class Loop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.neuron = nn.Linear(64, 128, bias=False), Step()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.neuron.v = torch.zeros(())
        return torch.stack([self.neuron(self.layer(x)) for _ in range(4)])


def test_neurons_of_your_own_are_calibrated_step_by_step(rows):
    model = Loop()
    readers = {Step: lambda module: Neuron(0.5, 0.5, 0.5)}
    report = init_(model, sample=rows, neurons=readers, generator=generator())
    assert "static" in report.layers[0].note
    calibrate(model, rows, 0.15, neurons=readers)
    assert model(rows).mean().item() == pytest.approx(0.15, rel=0.02)


def test_the_profile_reads_neurons_of_your_own_that_do_not_say_their_step_mode(rows):
    """A quarter of the neurons never fire, whether one call is a step or all steps."""
    model = Loop()
    init_(model, sample=rows, neurons=(readers := {Step: lambda m: Neuron(0.5, 0.5, 0.5)}))
    with torch.no_grad():
        model.layer.weight[:32] = 0
    table = depth_profile(model, rows, neurons=readers)
    assert table.dead_frac.tolist() == [0.25]
    assert table.rate[0] == pytest.approx(model(rows).mean().item(), rel=1e-5)

    class Whole(LIF):
        pass

    whole = nn.Sequential(nn.Linear(64, 128, bias=False), Whole())
    with torch.no_grad():
        whole[0].weight.copy_(model.layer.weight)
    steps = rows.expand(4, *rows.shape)
    table = depth_profile(whole, steps, neurons={Whole: lambda m: m.neuron})
    assert table.dead_frac.tolist() == [0.25]
