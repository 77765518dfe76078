"""`init_` on networks of three libraries: who follows whom, what each layer gets, and refusals."""

from __future__ import annotations

import math
import warnings

import pytest

pytest.importorskip("torch")
import torch
from torch import nn

from armillary.neuro.spikeinit import (
    LIF,
    AdaptiveLIF,
    Neuron,
    NormalisationFound,
    UnstableRate,
    UnstandardisedInput,
    UnsupportedNeuron,
    calibrate,
    deep_ms_resnet,
    depth_profile,
    init_,
    plain_mlp,
    solve,
    spiking_normal_,
    vgg9_snn,
)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def spread(layer: nn.Module) -> float:
    """σ: the weights' standard deviation times the square root of the fan-in."""
    weight = layer.weight.detach()
    return float(weight.std() * math.sqrt(weight[0].numel()))


@pytest.mark.parametrize("backend", ["torch", "spikingjelly"])
def test_rates_keep_over_thirty_layers(rows, rates, backend):
    if backend == "spikingjelly":
        pytest.importorskip("spikingjelly")
    model = plain_mlp(30, 256, inputs=64, T=3, backend=backend)
    report = init_(model, sample=rows, generator=generator())
    assert len(report.layers) == 31
    assert [layer.role for layer in report.layers[:2]] == ["first", "hidden"]
    assert report.untouched == ("readout",)
    found = rates(model, rows)
    assert found[0] == pytest.approx(0.1, rel=0.35)
    assert all(0.05 < rate < 0.2 for rate in found)


def test_both_backends_are_the_same_network(rows):
    pytest.importorskip("spikingjelly")
    answers = []
    for backend in ("torch", "spikingjelly"):
        model = plain_mlp(4, 32, inputs=64, backend=backend)
        init_(model, sample=rows, generator=generator())
        nn.init.constant_(model.readout.weight, 0.1)
        nn.init.zeros_(model.readout.bias)
        loss = model(rows).square().mean()
        loss.backward()
        answers.append((loss.item(), model.body[1].weight.grad))
    assert answers[0][0] == pytest.approx(answers[1][0])
    torch.testing.assert_close(answers[0][1], answers[1][1])


def test_weights_have_the_scale_of_the_theory(rows):
    model = plain_mlp(3, 400, inputs=64)
    init_(model, sample=2 * rows / rows.square().mean().sqrt(), generator=generator())
    params = solve(0.5, 0.5, 0.5, 0.1)
    assert spread(model.body[1]) == pytest.approx(params.sigma_static / 2, rel=0.03)
    assert spread(model.body[3]) == pytest.approx(params.sigma, rel=0.02)
    assert model.body[2].alpha == params.alpha


def test_equal_generators_give_equal_weights_and_leave_torchs_own_alone(rows):
    first, second = plain_mlp(3, 16, inputs=64), plain_mlp(3, 16, inputs=64)
    state = torch.random.get_rng_state()
    init_(first, sample=rows, generator=generator(3))
    init_(second, sample=rows, generator=generator(3))
    assert torch.equal(state, torch.random.get_rng_state())
    assert torch.equal(first.body[3].weight, second.body[3].weight)


def test_membrane_shortcuts_start_as_the_identity(rates):
    images = torch.randn(64, 1, 8, 8, generator=generator())
    model = deep_ms_resnet(13, 8)
    report = init_(model, sample=images, generator=generator())
    roles = {layer.name: layer.role for layer in report.layers}
    assert roles["body.stem"] == "first"
    for index, block in enumerate(model.body.blocks):
        assert roles[f"body.blocks.{index}.conv1"] == "hidden"
        assert roles[f"body.blocks.{index}.conv2"] == "branch"
        assert not block.conv2.weight.any()
        if block.shortcut is not None:
            assert roles[f"body.blocks.{index}.shortcut"] == "shortcut"
    assert roles["readout"] == "classifier"
    assert not model.readout.weight.any()
    stem, x = model.body.stem, images.expand(4, *images.shape)
    assert torch.equal(model.body.blocks[0](stem(x)), stem(x))


def test_padding_does_not_count_as_fan_in():
    model = vgg9_snn(8)
    report = init_(model, sample=torch.randn(32, 1, 8, 8), generator=generator())
    # Of the 8·8 positions of a 3×3 kernel 36 meet 9 taps, 24 meet 6 and 4 meet 4.
    assert report.layers[1].fan_in == pytest.approx(8 * (36 * 9 + 24 * 6 + 4 * 4) / 64)


def test_checkpointing_changes_nothing_but_memory():
    images = torch.randn(8, 1, 8, 8, generator=generator())
    gradients = []
    for segment in (0, 2):
        model = deep_ms_resnet(13, 4, T=2, checkpoint_segment=segment)
        init_(model, sample=images, generator=generator(1))
        nn.init.constant_(model.readout.weight, 0.1)
        model(images).square().sum().backward()
        gradients.append(model.body.blocks[0].conv2.weight.grad)
    torch.testing.assert_close(gradients[0], gradients[1])


class SewBlock(nn.Module):
    """Spikes of the branch are added to the spikes that came in."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(width, width), nn.Linear(width, width)
        self.n1, self.n2 = LIF(), LIF()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.n2(self.b(self.n1(self.a(x))))


def test_spike_sums_get_quiet_branches(rows):
    model = nn.Sequential(nn.Linear(64, 64), LIF(), SewBlock(64), SewBlock(64), nn.Linear(64, 3))
    report = init_(model, sample=rows.expand(4, -1, -1), generator=generator())
    assert [layer.role for layer in report.layers] == [
        "first", "hidden", "sew", "hidden", "sew", "classifier",
    ]  # fmt: skip
    # θ/Φ⁻¹(.99) / (λ √.5 / (1 - κ))
    assert report.layers[2].sigma == pytest.approx(0.5 / 2.32635 / (0.5 * 0.5**0.5 * 2))
    plain = init_(model, sample=rows.expand(4, -1, -1), residual=None)
    assert [layer.role for layer in plain.layers][2] == "hidden"


def test_branches_side_by_side_are_paired_by_the_graph_and_not_by_order(rows):
    class Crossed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = nn.Linear(64, 8), nn.Linear(64, 8)
            self.of_left, self.of_right = LIF(theta=0.5), LIF(theta=1.0)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            left, right = self.left(x), self.right(x)
            return torch.cat([self.of_right(right), self.of_left(left)], -1)

    report = init_(Crossed(), sample=rows.expand(4, -1, -1))
    assert {layer.name: layer.neuron for layer in report.layers} == {
        "left": "of_left",
        "right": "of_right",
    }
    assert report.layers[1].sigma == pytest.approx(2 * report.layers[0].sigma)


def test_snntorch_networks_are_initialised_through_their_loop(rows):
    snn = pytest.importorskip("snntorch")

    class Net(nn.Module):
        def __init__(self, reset: str) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(64, 200)])
            self.layers.extend(nn.Linear(200, 200) for _ in range(5))
            self.neurons = nn.ModuleList(
                snn.Leaky(beta=0.5, threshold=1.0, reset_mechanism=reset) for _ in range(6)
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            memories = [neuron.reset_mem() for neuron in self.neurons]
            out = []
            for _ in range(8):
                s = x
                for i, (layer, neuron) in enumerate(zip(self.layers, self.neurons, strict=True)):
                    s, memories[i] = neuron(layer(s), memories[i])
                out.append(s)
            return torch.stack(out)

    for reset in ("zero", "subtract"):
        model = Net(reset)
        report = init_(model, sample=rows, generator=generator())
        assert report.params["neurons.3"].neuron == Neuron(
            0.5, 1.0, 1.0, "hard" if reset == "zero" else "subtract"
        )
        assert report.params["neurons.3"].method == ("moments" if reset == "zero" else "sim")
        table = depth_profile(model, rows, lambda out: out.mean())
        assert len(table) == 6
        assert table.rate.between(0.04, 0.25).all()
        assert (table.grad_rms > 0).all()


def test_other_constants_than_those_of_params_are_solved_anew(rows):
    model = nn.Sequential(nn.Linear(64, 16), LIF(theta=0.5), nn.Linear(16, 16), LIF(0.5, 0.5, 1.0))
    params = solve(0.5, 0.5, 0.5, 0.2, surrogate="atan")
    report = init_(model, params, sample=rows.expand(4, -1, -1))
    assert report.params["1"] is params
    other = report.params["3"]
    assert (other.neuron.theta, other.rate, other.surrogate) == (1.0, 0.2, "atan")
    assert other.sigma == pytest.approx(2 * params.sigma)


def test_the_adaptive_neuron_gets_its_base(rows):
    model = nn.Sequential(nn.Linear(64, 16), AdaptiveLIF(16))
    init_(model, sample=rows.expand(4, -1, -1))
    params = solve()
    assert model[1].base == pytest.approx(params.alpha * params.std)


def test_shared_modules_are_initialised_once(rows):
    shared, neuron = nn.Linear(64, 64), LIF()
    model = nn.Sequential(shared, neuron, shared, neuron)
    report = init_(model, sample=rows.expand(4, -1, -1))
    assert len(report.layers) == 1
    assert report.layers[0].role == "first"


def test_weight_layers_without_a_neuron_are_left_alone(rows):
    model = nn.Sequential(nn.Linear(64, 16), LIF(), nn.Linear(16, 4), nn.ReLU(), nn.Linear(4, 2))
    before = model[2].weight.detach().clone()
    report = init_(model, sample=rows.expand(4, -1, -1))
    assert report.untouched == ("2", "4")
    assert torch.equal(before, model[2].weight)


def test_a_network_without_spiking_neurons_is_refused(rows):
    with pytest.raises(ValueError, match="spiking neuron"):
        init_(nn.Sequential(nn.Linear(64, 4), nn.ReLU()), sample=rows)


def test_normalisations_are_told_and_their_layers_left_alone(rows):
    model = nn.Sequential(nn.Linear(64, 16), nn.LayerNorm(16), LIF())
    before = model[0].weight.detach().clone()
    with pytest.warns(NormalisationFound, match="undoes"):
        report = init_(model, sample=rows.expand(4, -1, -1))
    assert report.untouched == ("0",)
    assert torch.equal(before, model[0].weight)


def test_inputs_that_are_not_standardised_are_told_with_their_rms(rows):
    model = nn.Sequential(nn.Linear(64, 16), LIF())
    with pytest.warns(UnstandardisedInput, match="RMS 12"):
        init_(model, sample=(12 * rows / rows.square().mean().sqrt()).expand(4, -1, -1))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnstandardisedInput)
        spikes = (torch.rand(4, 64, 64) < 0.01).float()
        init_(model, sample=spikes)


def test_unstable_rates_are_told_in_deep_networks_only(rows):
    deep, shallow = (plain_mlp(d, 16, inputs=64, tau=1.0, T=2) for d in (25, 10))
    with pytest.warns(UnstableRate, match=r"rate=0\.13"):
        init_(deep, sample=rows)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnstableRate)
        init_(shallow, sample=rows)
        init_(plain_mlp(25, 16, inputs=64, tau=1.0, T=2), sample=rows, rate="auto")


class MyLIF(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return LIF(0.5, 1.0, 0.8)(x)


def test_unknown_spiking_neurons_are_refused_with_what_is_known(rows):
    pytest.importorskip("spikingjelly")
    from spikingjelly.activation_based import neuron

    model = nn.Sequential(nn.Linear(64, 16), neuron.QIFNode(step_mode="m"))
    with pytest.raises(UnsupportedNeuron, match=r"QIFNode.*LIFNode.*method='sim'"):
        init_(model, sample=rows.expand(4, -1, -1))
    shifted = nn.Sequential(nn.Linear(64, 16), neuron.LIFNode(v_reset=-0.1, step_mode="m"))
    with pytest.raises(UnsupportedNeuron, match="v_reset"):
        init_(shifted, sample=rows.expand(4, -1, -1))


def test_your_own_neurons_are_read_by_you(rows):
    model = nn.Sequential(nn.Linear(64, 16), MyLIF())
    report = init_(
        model,
        sample=rows.expand(4, -1, -1),
        neurons={MyLIF: lambda m: Neuron(0.5, 1.0, 0.8)},
    )
    assert report.params["1"].sigma == solve(0.5, 1.0, 0.8, 0.1).sigma


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"kappa": 1.5}, "kappa=1.5: expected 0 to 1"),
        ({"kappa": -0.1}, "kappa"),
        ({"theta": 0.0}, "theta"),
        ({"lam": 0.0}, "lam"),
        ({"rate": 0.4}, "0.391"),
        ({"rate": 0.0}, "rate"),
        ({"rate": -1}, "rate"),
        ({"rate": 1.0}, "rate"),
        ({"kappa": 0.9, "rate": 0.19}, "0.1837"),
        ({"T": 0}, "T=0"),
        ({"T": 2.5}, "T=2.5"),
        ({"reset": "none"}, "reset"),
        ({"surrogate": "relu"}, "surrogate"),
        ({"method": "guess"}, "method"),
        ({"kappa": 1.0, "method": "moments"}, "steady state"),
        ({"method": "sim", "rate": 0.9}, "at most"),
        ({"refractory": -1}, "refractory"),
    ],
)
def test_values_out_of_range_are_refused_by_name(arguments, said):
    with pytest.raises(ValueError, match=said):
        solve(**arguments)


def test_neurons_without_a_steady_state_are_simulated_and_it_says_so():
    assert solve(kappa=1.0, lam=1.0, T=4).method == "sim"
    assert solve(reset="soft", T=4).method == "sim"


def test_spiking_normal_fills_in_place_and_refuses_what_it_cannot_mean():
    weight = torch.empty(500, 400)
    assert spiking_normal_(weight, 2.0, generator=generator()) is weight
    assert float(weight.std()) == pytest.approx(2 / 20, rel=0.01)
    with pytest.raises(ValueError, match="shape"):
        spiking_normal_(torch.empty(3), 1.0)
    with pytest.raises(ValueError, match="sigma"):
        spiking_normal_(weight, float("nan"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"first": "dynamic"}, "first"),
        ({"residual": "resnet"}, "residual"),
        ({"roles": {"9": "hidden"}}, "no weight layer"),
        ({"roles": {"0": "stem"}}, "roles"),
    ],
)
def test_choices_that_init_does_not_have_are_refused(rows, arguments, said):
    model = nn.Sequential(nn.Linear(64, 16), LIF())
    with pytest.raises(ValueError, match=said):
        init_(model, sample=rows.expand(4, -1, -1), **arguments)


def test_calibration_reaches_the_rate_that_pooling_took(rates):
    images = torch.randn(64, 1, 8, 8, generator=generator())
    model = vgg9_snn(8, T=3)
    init_(model, sample=images, generator=generator())
    pooled = rates(model, images)
    assert min(pooled) < 0.07
    records = calibrate(model, images, 0.1, 1)
    assert records[0].layer == "body.0"
    assert rates(model, images) == pytest.approx([0.1] * 8, rel=0.02)
    assert all(record.after == pytest.approx(0.1, rel=0.02) for record in records)


def test_calibration_refuses_what_it_cannot_reach():
    model = nn.Sequential(nn.Linear(4, 8, bias=False), LIF())
    with pytest.raises(ValueError, match="target_rate"):
        calibrate(model, torch.randn(2, 3, 4), 1.5)
    with pytest.raises(ValueError, match="iters"):
        calibrate(model, torch.randn(2, 3, 4), 0.1, 0)
    with pytest.raises(ValueError, match="at most"):
        calibrate(model, torch.zeros(2, 3, 4), 0.1)


def test_a_profile_leaves_the_network_as_it_was(rows):
    model = plain_mlp(3, 16, inputs=64, norm=lambda c, T, theta: nn.LayerNorm(c))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    table = depth_profile(model, rows, lambda logits: logits.square().mean())
    assert list(table.columns) == ["layer", "rate", "dead_frac", "grad_rms", "slope"]
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())


def test_by_the_sew_rule_one_neuron_of_a_hundred_ever_fires_with_half_of_the_inputs_on():
    """Its definition: a constant drive of variance σ²/2 a weight, summed up by the leak."""
    x = (torch.rand(100, 400, generator=torch.Generator().manual_seed(2)) < 0.5).float()
    model = nn.Sequential(nn.Linear(400, 4000, bias=False), LIF(0.5, 0.5, 0.5))
    sample = x.unsqueeze(0).expand(12, -1, -1)
    report = init_(model, sample=sample, roles={"0": "sew"}, generator=generator())
    sigma = 0.5 / 2.3263478740408408 / (0.5 * math.sqrt(0.5) / (1 - 0.5))
    assert report.layers[0].sigma == pytest.approx(sigma)
    with torch.no_grad():
        ever = model(sample).amax(0)
    assert ever.mean().item() == pytest.approx(0.01, abs=0.002)


def test_inputs_that_say_nothing_are_refused_and_change_no_weight():
    model = plain_mlp(3, 16, inputs=8, T=2)
    before = [p.detach().clone() for p in model.parameters()]
    for batch in (torch.zeros(0, 8), torch.full((4, 8), float("nan"))):
        with pytest.raises(ValueError, match="empty"):
            calibrate(model, batch, 0.1)
        with pytest.raises(ValueError, match="empty"):
            depth_profile(model, batch)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
