"""SEW networks, whose shortcuts carry spikes: at initialisation, and in a short training."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from armillary.evidence.shapes import (
    Ablation,
    Case,
    Cell,
    Claim,
    Condition,
    Contender,
    Experiment,
    Metric,
    Stat,
)
from armillary.neuro.spikeinit.apply import init_
from armillary.neuro.spikeinit.evidence_depth import FLOOR, RATE
from armillary.neuro.spikeinit.evidence_networks import NEURON, THEORY, Split, digits
from armillary.neuro.spikeinit.evidence_trained import (
    FASHION,
    METRICS,
    RESIDUAL_NORMS,
    Run,
    clothes,
    contenders,
)
from armillary.neuro.spikeinit.models import SpikingNetwork, deep_sew_resnet
from armillary.neuro.spikeinit.neurons import LIF
from armillary.neuro.spikeinit.peers import INITIALISATIONS
from armillary.neuro.spikeinit.profile import depth_profile

STEPS, SAMPLES = 4, 256
#: How an initialisation fills a network, from a sample.
Fill = Callable[[nn.Module, torch.Tensor, torch.Generator], object]


def _ours(residual: Any) -> Fill:
    # The readout keeps torch's weights: with zeros, no gradient would leave it to be measured.
    return lambda model, sample, generator: init_(
        model,
        sample=sample,
        residual=residual,
        roles={"readout": "untouched"},
        generator=generator,
    )


def _rival(name: str) -> Fill:
    return lambda model, sample, generator: INITIALISATIONS[name](model, NEURON, generator)


def profiled(fill: Fill) -> Run:
    """Rates of the branches, the sum that they leave, and the gradient over depth; no training."""

    def run(work: Split, cell: Cell) -> Mapping[str, float]:
        torch.set_flush_denormal(True)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(cell.seed)
            model = deep_sew_resnet(
                int(cell.case.x["depth"]),
                int(cell.case.x["width"]),
                T=STEPS,
                neuron=lambda _: LIF(0.5, 0.5, 0.5, THEORY),
                strides=(2, 1, 1),
                grid=4,
            )
        x, y = work.x[:SAMPLES], work.y[:SAMPLES]
        fill(model, x, torch.Generator().manual_seed(cell.seed))
        sums = _sums(model, x)
        table = depth_profile(model, x, lambda logits: nn.functional.cross_entropy(logits, y))
        branches = table[table.layer.str.endswith("neuron2")]
        first, last = float(table.grad_rms.iloc[0]), float(branches.grad_rms.iloc[-1])
        fell = math.log10(first / last) if first > 0 and last > 0 else FLOOR
        return {
            "branch_rate": float(branches.rate.mean()),
            "first_sum": sums[0],
            "last_sum": sums[-1],
            "sum_error": abs(math.log2(max(sums[-1], 1e-6) / RATE)),
            "gradient": min(max(fell, FLOOR), -FLOOR) if math.isfinite(fell) else -FLOOR,
        }

    return run


def _sums(model: SpikingNetwork, x: torch.Tensor) -> list[float]:
    """The mean of what each block hands on, in spikes a neuron and step."""
    found: list[float] = []
    blocks: Any = model.body.blocks
    handles = [
        block.register_forward_hook(lambda _, inputs, output: found.append(float(output.mean())))
        for block in blocks
    ]
    with torch.no_grad():
        model(x)
    for handle in handles:
        handle.remove()
    return found


def _init_case(depth: int, width: int) -> Case:
    return Case(f"depth={depth}", x={"depth": depth, "width": width})


SEW_PROFILE = Experiment(
    id="sew-profile",
    title="SEW networks of 101 layers at initialisation",
    cases={
        "smoke": [_init_case(7, 4)],
        "quick": [],
        "full": [_init_case(101, 8)],
        "long": [_init_case(101, 16), _init_case(201, 16)],
    },
    setup=lambda cell: digits(cell.seed),
    contenders=(
        Contender("ours", profiled(_ours("auto"))),
        Contender("no-sew-rule", profiled(_ours(None))),
        *(Contender(name, profiled(_rival(name))) for name in ("kaiming", "fluctuation", "ding")),
    ),
    metrics=(
        Metric("branch_rate", "spikes a step"),
        Metric("first_sum", "spikes a step", "neither"),
        Metric("last_sum", "spikes a step", "neither"),
        Metric("sum_error", "octaves"),
        Metric("gradient", "log10 of first over last", "neither"),
    ),
    claims=(
        Claim(
            id="sew-branches-start-quiet",
            statement="In SEW networks of 101 layers without normalisation branches start quiet: "
            "their last neurons fire in at most one step of a hundred, so that the last sum is "
            "still within a factor of two of the design's 0.1 spikes a neuron and step, and the "
            "gradient at the stem is between a hundredth and a hundred times that at the last "
            "block.",
            paper="Gives the rule for the last layer of a branch; no figure for it alone.",
            conditions=(
                Condition(Stat("branch_rate"), at_most=0.01),
                Condition(Stat("last_sum"), at_least=0.05, at_most=0.2),
                Condition(Stat("gradient"), at_least=-2.0, at_most=2.0),
            ),
            ablations=(
                Ablation("no-sew-rule", "sum_error"),
                Ablation("kaiming", "sum_error", expect="reported"),
                Ablation("fluctuation", "sum_error", expect="reported"),
                Ablation("ding", "sum_error", expect="reported"),
            ),
        ),
    ),
    seeds={"smoke": 1, "quick": 3, "full": 3, "long": 3},
    packages=("torch", "scikit-learn"),
)


def _sew(depth: int, width: int, steps: int, rows: int = 10_000, batch: int = 64) -> Case:
    return Case(
        f"depth={depth}",
        x={"depth": depth, "width": width, "steps": steps, "batch": batch, "side": 7,
           "rows": rows},
        needs=FASHION,
    )  # fmt: skip


SEW_TRAINING = Experiment(
    id="sew-training",
    title="Training SEW networks of 31 layers on Fashion-MNIST",
    cases={
        "smoke": [_sew(7, 4, 2, rows=200, batch=8)],
        "quick": [],
        "full": [_sew(31, 8, 50)],
        "long": [_sew(101, 8, 50)],
    },
    setup=clothes,
    contenders=contenders("sew", ("ours", "no-sew-rule", "kaiming", *RESIDUAL_NORMS)),
    metrics=METRICS,
    claims=(
        Claim(
            id="sew-matches-batch-norm",
            statement="SEW networks of 31 layers without normalisation are at most half a point "
            "less accurate than with tdBN (also with its branches starting at zero), BNTT, TEBN or "
            "MPBN, after the same number of steps.",
            paper="Reports that SEW-ResNets without normalisation match or beat normalised ones.",
            conditions=(
                Condition(Stat("accuracy", over=RESIDUAL_NORMS, form="difference"), at_least=-0.5),
            ),
            ablations=(
                Ablation("no-sew-rule", "accuracy"),
                Ablation("kaiming", "accuracy"),
            ),
        ),
    ),
    seeds={"smoke": 1, "quick": 3, "full": 3, "long": 3},
    packages=("torch",),
)
