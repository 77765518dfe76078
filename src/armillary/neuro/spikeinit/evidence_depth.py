"""E1 and its ablations: rates and gradients over 100 layers at initialisation, without training."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from armillary.evidence.shapes import (
    Ablation,
    Case,
    Cell,
    Claim,
    Condition,
    Contender,
    Experiment,
    Metric,
    Need,
    Stat,
)
from armillary.neuro.spikeinit.apply import spiking_normal_
from armillary.neuro.spikeinit.evidence_networks import NEURON, THEORY
from armillary.neuro.spikeinit.models import SpikingNetwork, plain_mlp
from armillary.neuro.spikeinit.neurons import LIF
from armillary.neuro.spikeinit.peers import INITIALISATIONS, hidden_layers
from armillary.neuro.spikeinit.profile import depth_profile
from armillary.neuro.spikeinit.solving import SpikeInitParams, solve

DEPTH, STEPS, SAMPLES, RATE = 100, 4, 256, 0.1
#: Where a gradient that is exactly 0 (and, with the other sign, one beyond single precision) is put
#: on the logarithmic scale.
FLOOR = -45.0
#: Surrogates that rival initialisations are given to choose from.
ALPHAS = (1.0, THEORY, 4.0, 6.0)

Run = Callable[[Tensor, Cell], Mapping[str, float]]


def spike_trains(cell: Cell) -> Tensor:
    """(T, samples, width) spikes at the design's rate, independent of each other."""
    torch.set_flush_denormal(True)
    width = int(cell.case.x["width"])
    generator = torch.Generator().manual_seed(cell.seed)
    samples = 64 if cell.profile == "smoke" else SAMPLES
    return (torch.rand(STEPS, samples, width, generator=generator) < RATE).float()


def _network(work: Tensor, cell: Cell, alpha: float) -> SpikingNetwork:
    width, depth = work.shape[-1], int(cell.case.x["depth"])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(cell.seed)
        return plain_mlp(
            depth, width, inputs=width, T=STEPS, neuron=lambda _: LIF(0.5, 0.5, 0.5, alpha)
        )


def _measured(model: nn.Module, work: Tensor, cell: Cell, rate: float) -> dict[str, float]:
    labels = torch.randint(
        10, (work.shape[1],), generator=torch.Generator().manual_seed(cell.seed + 1)
    )
    table = depth_profile(
        model,
        work,
        lambda logits: nn.functional.cross_entropy(logits, labels),
        forward=lambda m, x: m(x, coded=True),
    )
    rates, gradients = table.rate.to_numpy(), table.grad_rms.to_numpy()
    looked = np.append(rates[9::10], rates[-1])  # every tenth layer, and the last
    first, last = float(gradients[0]), float(gradients[-1])
    if not math.isfinite(first):
        fell = -FLOOR  # it grew beyond single precision
    elif first > 0 and last > 0:
        fell = math.log10(first / last)
    else:
        fell = FLOOR  # no gradient reaches the first layer, or none leaves the last
    return {
        "rate_10": float(rates[min(9, len(rates) - 1)]),
        "rate_100": float(rates[-1]),
        "rate_min": float(looked.min()),
        "rate_max": float(looked.max()),
        "rate_error": abs(math.log2(max(float(rates[-1]), 1e-6) / rate)),
        "gradient": min(max(fell, FLOOR), -FLOOR),
        "gradient_error": min(abs(fell), -FLOOR),
        "dead": float(table.dead_frac.iloc[-1]),
    }


def initialised(
    change: Callable[[SpikeInitParams], tuple[float, float]] | None = None,
    rate: float = RATE,
    method: str = "moments",
) -> Run:
    """Ours, with σ and α changed by ``change``."""

    def run(work: Tensor, cell: Cell) -> Mapping[str, float]:
        params = solve(0.5, 0.5, 0.5, rate, STEPS, method=method)  # pyright: ignore
        sigma, alpha = (params.sigma, params.alpha) if change is None else change(params)
        model = _network(work, cell, alpha)
        generator = torch.Generator().manual_seed(cell.seed)
        for _, layer in hidden_layers(model):
            spiking_normal_(layer.weight, sigma, generator=generator)  # pyright: ignore
        return _measured(model, work, cell, rate)

    return run


def rival(name: str) -> Run:
    """A rival initialisation, with the α of `ALPHAS` that keeps its gradient best.

    The forward pass does not depend on α. Where the last layer is silent, no weight there has a
    gradient at any α, and α = 1 is left to stand for all.
    """

    def at(alpha: float, work: Tensor, cell: Cell) -> dict[str, float]:
        model = _network(work, cell, alpha)
        INITIALISATIONS[name](model, NEURON, torch.Generator().manual_seed(cell.seed))
        if name == "fluctuation":  # its input are spikes here, in the first layer too
            first = next(layer for _, layer in hidden_layers(model))
            with torch.no_grad():
                first.weight.mul_(1 / math.sqrt(RATE))  # pyright: ignore
        return _measured(model, work, cell, RATE) | {"alpha": alpha}

    def run(work: Tensor, cell: Cell) -> Mapping[str, float]:
        found = [at(ALPHAS[0], work, cell)]
        if found[0]["rate_100"] > 0:
            found += [at(alpha, work, cell) for alpha in ALPHAS[1:]]
        best = min(found, key=lambda one: one["gradient_error"])
        return best | {"gradient_unit_alpha": found[0]["gradient"]}

    return run


def host(name: Literal["spikingjelly", "snntorch"]) -> Run:
    """A network of a library's own layers as they come: torch's weights, its neuron's constants.

    SpikingJelly: τ = 2, threshold 1, its sigmoid surrogate. snnTorch: β = 0.9 as in its tutorials
    (there is no default), threshold 1, reset by subtraction, its arctangent surrogate.
    """

    def run(work: Tensor, cell: Cell) -> Mapping[str, float]:
        depth = int(cell.case.x["depth"])
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(cell.seed)
            network = (_Jelly if name == "spikingjelly" else _SnnTorch)(work.shape[-1], depth)
        return _measured(network, work, cell, RATE)

    return run


class _Jelly(nn.Module):
    """SpikingJelly's layers and neurons over all steps; the answer is averaged over them."""

    def __init__(self, width: int, depth: int) -> None:
        from spikingjelly.activation_based import layer, neuron

        super().__init__()
        parts: list[nn.Module] = []
        for _ in range(depth):
            parts += [layer.Linear(width, width, step_mode="m"), neuron.LIFNode(step_mode="m")]
        self.body = nn.Sequential(*parts)
        self.readout = nn.Linear(width, 10)

    def forward(self, x: Tensor, coded: bool = True) -> Tensor:
        return self.readout(self.body(x)).mean(0)


class _SnnTorch(nn.Module):
    """snnTorch's neurons, a step at a time; the answer is averaged over the steps."""

    def __init__(self, width: int, depth: int) -> None:
        import snntorch

        super().__init__()
        parts: list[nn.Module] = []
        for _ in range(depth):
            parts += [nn.Linear(width, width), snntorch.Leaky(beta=0.9, init_hidden=True)]
        self.body = nn.Sequential(*parts)
        self.readout = nn.Linear(width, 10)

    def forward(self, x: Tensor, coded: bool = True) -> Tensor:
        return torch.stack([self.readout(self.body(step)) for step in x]).mean(0)


SILENT = ("torch-default", "kaiming", "fluctuation", "micheli", "ding-no-bias")


def _peer(module: str) -> tuple[Need, ...]:
    return (Need("extra", module, "pip install 'armillary[neuro-peers]'"),)


def _cases(*widths: int, depth: int = DEPTH) -> list[Case]:
    return [Case(f"width={w}", x={"width": w, "depth": depth}) for w in widths]


DEPTHS = Experiment(
    id="depth-profile",
    title="Rates and gradients over 100 layers at initialisation",
    cases={
        "smoke": _cases(32, depth=12),
        "quick": _cases(128),
        "full": _cases(128, 256),
        "long": _cases(512),
    },
    setup=spike_trains,
    contenders=(
        Contender("ours", initialised()),
        Contender("sim", initialised(method="sim")),
        Contender("correlated", initialised(rate=0.16, method="correlated")),
        *(Contender(name, rival(name)) for name in INITIALISATIONS),
        Contender("spikingjelly", host("spikingjelly"), _peer("spikingjelly"), required=False),
        Contender("snntorch", host("snntorch"), _peer("snntorch"), required=False),
        Contender("half-sigma", initialised(lambda p: (0.5 * p.sigma, p.alpha))),
        Contender("double-sigma", initialised(lambda p: (2 * p.sigma, p.alpha))),
        Contender("static-sigma", initialised(lambda p: (p.sigma_static, p.alpha))),
        Contender("alpha-x8", initialised(lambda p: (p.sigma, 8 * p.alpha))),
        Contender("unit-alpha", initialised(lambda p: (p.sigma, 1.0))),
    ),
    metrics=(
        Metric("rate_10", "spikes a step", "neither"),
        Metric("rate_100", "spikes a step", "neither"),
        Metric("rate_min", "spikes a step", "neither"),
        Metric("rate_max", "spikes a step", "neither"),
        Metric("rate_error", "octaves"),
        Metric("gradient", "log10 of first over last", "neither"),
        Metric("gradient_error", "decades"),
        Metric("gradient_unit_alpha", "log10 of first over last", "neither"),
        Metric("alpha", "", "neither"),
        Metric("dead", "share"),
    ),
    claims=(
        Claim(
            id="rate-keeps",
            statement="In 100 layers without normalisation neurons fire within a factor of two "
            "of the design's 0.1 at every tenth layer, at most 5 % of those of the last never fire "
            "over 256 samples, and the gradient at the first layer is between a hundredth and a "
            "hundred times that at the last.",
            paper="Claims a constant rate and gradient over depth at initialisation; plots only.",
            conditions=(
                Condition(Stat("rate_min"), at_least=0.05),
                Condition(Stat("rate_max"), at_most=0.2),
                Condition(Stat("dead"), at_most=0.05),
                Condition(Stat("gradient"), at_least=-2.0, at_most=2.0),
            ),
            ablations=(
                Ablation("half-sigma", "rate_error"),
                Ablation("double-sigma", "rate_error"),
                Ablation("static-sigma", "rate_error"),
                Ablation("alpha-x8", "gradient_error"),
                Ablation("unit-alpha", "gradient_error", expect="reported"),
                Ablation("sim", "rate_error", expect="reported"),
                Ablation("correlated", "gradient_error", expect="reported"),
            ),
        ),
        Claim(
            id="others-fall-silent",
            statement="By layer 10, torch's default, He's, the fluctuation-driven and Micheli's "
            "initialisation, and Ding's weights without their bias, fire in at most one step of "
            "10,000.",
            paper="Shows rates of other initialisations that vanish with depth; plots only.",
            conditions=tuple(Condition(Stat("rate_10", of=name), at_most=1e-4) for name in SILENT),
        ),
        Claim(
            id="default-layers-fall-silent",
            statement="Networks of SpikingJelly's or snnTorch's own layers as they come, with "
            "torch's weights, fire in at most one step of 10,000 by layer 10.",
            paper="Builds on SpikingJelly; does not show its defaults.",
            conditions=tuple(
                Condition(Stat("rate_10", of=name), at_most=1e-4)
                for name in ("spikingjelly", "snntorch")
            ),
        ),
        Claim(
            id="dings-gradient-dies",
            statement="Ding's initialisation with its bias keeps firing, but its gradient at the "
            "first of 100 layers is at most a millionth of that at the last, with the surrogate "
            "(α of 1, 2.31, 4 or 6) that keeps its gradient best.",
            paper="Compares with Ding et al.; plots only.",
            conditions=(
                Condition(Stat("gradient", of="ding"), at_most=-6.0),
                Condition(Stat("rate_10", of="ding"), at_least=1e-3),
            ),
        ),
    ),
    seeds={"smoke": 1, "quick": 4, "full": 4, "long": 3},
    packages=("torch",),
)
