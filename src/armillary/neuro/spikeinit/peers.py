"""Rivals, rewritten from their papers: initialisations, and normalisations of spiking networks.

Initialisations (weights of a layer are N(0, gain²/fan_in)):

- torch's default, and He et al. 2015 (gain √2);
- fluctuation-driven, Rossbroich, Gygax and Zenke 2022: the membrane's fluctuation puts the
  threshold ξ = 2 standard deviations up: gain θ√(1-κ²)/(λ√p ξ) at an input rate p;
- Micheli, Booij, van Gemert and Tömen 2025: gain 1/√(1-Φ(θ));
- Ding et al. 2025: gain √2 θ/λ, bias θ(1-κ)/(2λ).

Normalisations: tdBN (Zheng et al. 2021), BNTT (Kim and Panda 2021), TEBN (Duan et al. 2022), MPBN
(Guo et al. 2023).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from armillary.neuro.spikeinit.neurons import LIF, SurrogateSpike
from armillary.neuro.spikeinit.theory import Neuron
from armillary.neuro.spikeinit.tracing import WEIGHT_LAYERS

#: Rate that the fluctuation-driven rule assumes of its input: that of our own design.
RATE = 0.1
_XI = 2.0


def hidden_layers(model: nn.Module) -> Iterator[tuple[int, nn.Module]]:
    """The weight layers of a network of this package before its readout, numbered."""
    layers = [
        m for n, m in model.named_modules() if isinstance(m, WEIGHT_LAYERS) and n != "readout"
    ]
    yield from enumerate(layers)


def _fill(
    model: nn.Module,
    gain: Callable[[int], float],
    generator: torch.Generator,
    bias: float | None = None,
) -> None:
    for index, layer in hidden_layers(model):
        weight: Tensor = layer.weight  # pyright: ignore[reportAssignmentType]
        with torch.no_grad():
            weight.normal_(0, gain(index) / math.sqrt(weight[0].numel()), generator=generator)
            if bias is not None:
                layer.bias = nn.Parameter(torch.full((len(weight),), bias))


def torch_default(model: nn.Module, neuron: Neuron, generator: torch.Generator) -> None:
    """U(±1/√fan_in), torch's own for linear layers and convolutions."""
    for _, layer in hidden_layers(model):
        weight: Tensor = layer.weight  # pyright: ignore[reportAssignmentType]
        bound = 1 / math.sqrt(weight[0].numel())
        with torch.no_grad():
            weight.uniform_(-bound, bound, generator=generator)


def kaiming(model: nn.Module, neuron: Neuron, generator: torch.Generator) -> None:
    """He et al. 2015, for ReLU."""
    _fill(model, lambda index: math.sqrt(2), generator)


def fluctuation(model: nn.Module, neuron: Neuron, generator: torch.Generator) -> None:
    """Rossbroich et al. 2022; the first layer's input has the mean square 1."""
    gain = neuron.theta * math.sqrt(1 - neuron.kappa**2) / (neuron.lam * _XI)
    _fill(model, lambda index: gain / math.sqrt(RATE if index else 1.0), generator)


def micheli(model: nn.Module, neuron: Neuron, generator: torch.Generator) -> None:
    """Micheli et al. 2025."""
    above = 0.5 * math.erfc(neuron.theta / math.sqrt(2))
    _fill(model, lambda index: 1 / math.sqrt(above), generator)


def ding(model: nn.Module, neuron: Neuron, generator: torch.Generator) -> None:
    """Ding et al. 2025, with its bias."""
    bias = neuron.theta * (1 - neuron.kappa) / (2 * neuron.lam)
    _fill(model, lambda index: math.sqrt(2) * neuron.theta / neuron.lam, generator, bias)


def ding_without_bias(model: nn.Module, neuron: Neuron, generator: torch.Generator) -> None:
    """Ding et al. 2025, its weights alone."""
    _fill(model, lambda index: math.sqrt(2) * neuron.theta / neuron.lam, generator)


INITIALISATIONS: dict[str, Callable[[nn.Module, Neuron, torch.Generator], None]] = {
    "torch-default": torch_default,
    "kaiming": kaiming,
    "fluctuation": fluctuation,
    "micheli": micheli,
    "ding": ding,
    "ding-no-bias": ding_without_bias,
}


# ---- normalisations ----------------------------------------------------------------------------


class TdBN(nn.BatchNorm1d):
    """Threshold-dependent batch norm: over time, batch and space.

    Its weight starts at the scale θ/λ. The paper's neurons have the input gain 1, where that is its
    threshold; with another gain the normalised input reaches θ as it does there only if the gain is
    divided out. A weight of θ alone trains worse here.
    """

    def __init__(self, channels: int, T: int, scale: float) -> None:
        super().__init__(channels)
        nn.init.constant_(self.weight, scale)

    def forward(self, input: Tensor) -> Tensor:
        flat = input.flatten(0, 1)  # batch norm takes (n, channels) and (n, channels, space)
        flat = flat if flat.ndim == 2 else flat.flatten(2)
        return super().forward(flat).view_as(input)


class BNTT(nn.Module):
    """Batch norm through time: statistics and a weight of its own at each step, no shift."""

    def __init__(self, channels: int, T: int, scale: float) -> None:
        super().__init__()
        self.steps = nn.ModuleList([nn.BatchNorm1d(channels, eps=1e-4) for _ in range(T)])
        for step in self.steps:
            step.register_parameter("bias", None)

    def forward(self, input: Tensor) -> Tensor:
        out = [
            norm(x if x.ndim == 2 else x.flatten(2)).view_as(x)
            for norm, x in zip(self.steps, input, strict=True)
        ]
        return torch.stack(out)


class TEBN(nn.Module):
    """Temporal effective batch norm: tdBN's statistics, then a learnt weight a step."""

    def __init__(self, channels: int, T: int, scale: float) -> None:
        super().__init__()
        self.norm = TdBN(channels, T, scale)
        self.p = nn.Parameter(torch.ones(T))

    def forward(self, input: Tensor) -> Tensor:
        return self.norm(input) * self.p.view(-1, *(1,) * (input.ndim - 1))


class MPBNNeuron(nn.Module):
    """Neurons whose membrane is batch-normalised at each step before it is compared with θ; the
    membrane that goes on to the next step is the one before normalisation."""

    def __init__(self, channels: int, lif: LIF) -> None:
        super().__init__()
        self.neuron, self.alpha = lif.neuron, lif.alpha
        self.norm = nn.BatchNorm1d(channels)

    def forward(self, x: Tensor) -> Tensor:
        n = self.neuron
        spike = SurrogateSpike(self.alpha)
        v = torch.zeros_like(x[0])
        out = []
        for current in x:
            v = v + n.lam * current
            flat = v if v.ndim == 2 else v.flatten(2)
            s = spike(self.norm(flat).view_as(v) - n.theta)
            out.append(s)
            v = n.kappa * v * (1 - s.detach())
        return torch.stack(out)


NORMALISATIONS: dict[str, Callable[[int, int, float], nn.Module]] = {
    "tdbn": TdBN,
    "bntt": BNTT,
    "tebn": TEBN,
    "mpbn": TdBN,  # beside the one inside its neurons
}
