"""Networks, rivals and training: sizes, published gains, statistics of normalisations."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("torch")
import torch
from torch import nn

from armillary.neuro.spikeinit import (
    LIF,
    Neuron,
    deep_ms_resnet,
    deep_sew_resnet,
    plain_mlp,
    vgg9_snn,
)
from armillary.neuro.spikeinit.peers import (
    BNTT,
    INITIALISATIONS,
    TEBN,
    MPBNNeuron,
    TdBN,
    hidden_layers,
)
from armillary.neuro.spikeinit.training import Recipe, accuracy, minibatches, train


def test_a_thousand_layers_are_166_166_and_167_blocks():
    model = deep_ms_resnet(1000, 2)
    widths = [block.conv2.weight.shape[0] for block in model.body.blocks]
    assert [widths.count(w) for w in (2, 4, 8)] == [166, 166, 167]
    convolutions = 1 + 2 * len(widths)
    assert convolutions + 1 == 1000


def test_sew_blocks_add_spikes_to_spikes():
    """By hand: a block of stride 1 hands on its input and the spikes of its branch."""
    model = deep_sew_resnet(7, 3, T=2).eval()
    block = model.body.blocks[0]
    x = (torch.rand(2, 5, 3, 4, 4, generator=torch.Generator().manual_seed(0)) < 0.5).float()
    with torch.no_grad():
        branch = block.neuron2(block.conv2(block.neuron1(block.conv1(x))))
        assert torch.equal(block(x), x + branch)
        assert set(branch.unique().tolist()) <= {0.0, 1.0}
        changing = model.body.blocks[1]
        assert changing.shortcut[1](changing.shortcut[0](x)).unique().numel() <= 2


def test_both_residual_networks_have_the_same_layers():
    shapes = [
        [tuple(p.shape) for p in build(13, 4).parameters()]
        for build in (deep_ms_resnet, deep_sew_resnet)
    ]
    assert shapes[0] == shapes[1]


def test_checkpointing_changes_no_gradient_of_a_sew_network():
    x = torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    gradients = []
    for segment in (0, 2):
        torch.manual_seed(0)
        model = deep_sew_resnet(13, 4, T=2, checkpoint_segment=segment)
        model(x).square().sum().backward()
        gradients.append(model.body.blocks[0].conv1.weight.grad)
    torch.testing.assert_close(gradients[0], gradients[1])


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: deep_sew_resnet(5), "depth=5"),
        (lambda: deep_ms_resnet(6), "depth=6"),
        (lambda: plain_mlp(0), "depth=0"),
        (lambda: plain_mlp(T=0), "T=0"),
        (lambda: vgg9_snn(tau=0.5), "tau"),
        (lambda: plain_mlp(backend="jax"), "backend"),
        (lambda: plain_mlp(backend="spikingjelly", neuron="adaptive"), "torch"),
        (lambda: plain_mlp(neuron="izhikevich"), "neuron"),
    ],
)
def test_networks_that_cannot_be_are_refused(build, said):
    with pytest.raises(ValueError, match=said):
        build()


@pytest.mark.parametrize(
    ("name", "gain"),
    [
        ("torch-default", math.sqrt(1 / 3)),
        ("kaiming", math.sqrt(2)),
        ("fluctuation", 0.5 * math.sqrt(0.75) / (0.5 * math.sqrt(0.1) * 2)),
        ("micheli", 1.8004),
        ("ding", math.sqrt(2)),
    ],
)
def test_rival_initialisations_have_their_published_gains(name, gain):
    model = plain_mlp(3, 500, inputs=64)
    INITIALISATIONS[name](model, Neuron(0.5, 0.5, 0.5), torch.Generator().manual_seed(0))
    layers = [layer for _, layer in hidden_layers(model)]
    assert len(layers) == 3
    assert float(layers[1].weight.detach().std()) * math.sqrt(500) == pytest.approx(gain, rel=0.01)
    bias = layers[1].bias
    assert (bias is None) == (name != "ding")
    if bias is not None:
        assert bias.unique().tolist() == [0.25]


def test_tdbn_and_tebn_take_statistics_over_time_and_bntt_a_step_at_a_time():
    x = torch.randn(4, 64, 3, 5, 5) * 3 + torch.arange(4.0).view(4, 1, 1, 1, 1)
    whole = (x - x.mean((0, 1, 3, 4), keepdim=True)) / x.std((0, 1, 3, 4), keepdim=True)
    torch.testing.assert_close(TdBN(3, 4, 0.5)(x), 0.5 * whole, rtol=1e-2, atol=1e-2)
    tebn = TEBN(3, 4, 0.5)
    with torch.no_grad():
        tebn.p.copy_(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    torch.testing.assert_close(tebn(x)[3], 2 * whole[3], rtol=1e-2, atol=1e-2)
    step = (x - x.mean((1, 3, 4), keepdim=True)) / x.std((1, 3, 4), keepdim=True)
    torch.testing.assert_close(BNTT(3, 4, 0.5)(x), step, rtol=1e-2, atol=1e-2)


def test_mpbn_normalises_the_membrane_before_it_fires():
    neuron = MPBNNeuron(2, LIF(0.5, 0.5, 0.5))
    x = torch.randn(1, 4000, 2) * 7 + 3
    # A normalised membrane exceeds 0.5 with probability 1 - Φ(0.5).
    assert neuron(x).mean().item() == pytest.approx(0.3085, abs=0.015)


def test_mpbn_carries_the_membrane_as_it_was_before_normalisation():
    """Two steps by hand: u is normalised, v goes on."""
    neuron = MPBNNeuron(2, LIF(0.5, 0.5, 0.5)).train()
    x = torch.randn(2, 50, 2, generator=torch.Generator().manual_seed(0)) * 3 + 1

    def unit(v: torch.Tensor) -> torch.Tensor:
        return (v - v.mean(0)) / (v.var(0, correction=0) + 1e-5).sqrt()

    first = 0.5 * x[0]
    fired = (unit(first) >= 0.5).float()
    second = 0.5 * first * (1 - fired) + 0.5 * x[1]
    assert torch.equal(neuron(x), torch.stack([fired, (unit(second) >= 0.5).float()]))


def test_normalisations_start_at_the_input_that_fires_a_neuron_at_rest():
    model = plain_mlp(1, 3, inputs=4, T=2, tau=4.0, theta=0.5, norm=TdBN)
    assert model.body[1][1].weight.tolist() == [2.0, 2.0, 2.0]


def test_minibatches_pass_over_all_rows():
    batches = minibatches(100, 10, 25, seed=0)
    assert len(batches) == 25
    assert torch.cat(batches[:10]).sort().values.tolist() == list(range(100))
    assert minibatches(5, 10, 2, seed=0)[0].shape == (5,)


def test_training_is_the_same_for_the_same_seed():
    x = torch.randn(60, 5, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long()
    losses = []
    for _ in range(2):
        model = nn.Linear(5, 2)
        nn.init.zeros_(model.weight)
        nn.init.zeros_(model.bias)
        losses.append(train(model, x, y, Recipe("adam", 0.1, 40, 20), 3))
        assert accuracy(model, x, y) > 0.9
    assert losses[0] == losses[1]
    assert losses[0][0] == pytest.approx(math.log(2))


@pytest.mark.parametrize(
    "arguments", [{"optimiser": "lion"}, {"lr": 0.0}, {"steps": 0}, {"batch": 0}]
)
def test_recipes_that_cannot_be_are_refused(arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        Recipe(**arguments)
