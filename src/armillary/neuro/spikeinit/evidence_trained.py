"""How the training experiments train and measure a contender, and what they share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import nn

from armillary.corpora.registry import EXTERNAL
from armillary.evidence.shapes import Cell, Contender, Metric, Need
from armillary.neuro.spikeinit.evidence_networks import (
    Family,
    Split,
    build,
    fashion,
    recipe,
    setting_of,
)
from armillary.neuro.spikeinit.training import accuracy, train

Run = Callable[[Split, Cell], Mapping[str, float]]

INITS = ("torch-default", "kaiming", "fluctuation", "micheli", "ding")
BATCH_NORMS = ("tdbn", "bntt", "tebn", "mpbn")
RESIDUAL_NORMS = (*BATCH_NORMS, "tdbn-zero")

FASHION = tuple(
    Need("data", entry.path, entry.how)
    for entry in EXTERNAL
    if entry.name.startswith("fashion-mnist-")
)

METRICS = (
    Metric("accuracy", "%", "higher"),
    Metric("loss", "nats"),
    Metric("steps_to_60", "steps"),
    Metric("steps_to_80", "steps"),
    Metric("spikes", "a sample"),
)


def trained(who: str, family: Family) -> Run:
    """Build a contender's network, train it with its tuned setting, test it."""

    def run(work: Split, cell: Cell) -> Mapping[str, float]:
        x = cell.case.x
        setting = setting_of(family, who)
        steps, batch = int(x["steps"]), int(x["batch"])
        model = build(
            who, family, int(x["depth"]), int(x["width"]), work.x, cell.seed, setting.alpha
        )
        rising = Rising(model, work)
        losses = train(
            model, work.x, work.y, recipe(setting, steps, batch), cell.seed, watch=rising
        )
        tail = [value for value in losses[-20:] if math.isfinite(value)]
        return {
            "accuracy": 100 * accuracy(model, work.x_test, work.y_test),
            # A loss that is no number any more counts as ten times that of guessing.
            "loss": float(np.mean(tail)) if tail else 10 * math.log(10),
            "steps_to_60": float(rising.reached.get(60, steps)),
            "steps_to_80": float(rising.reached.get(80, steps)),
            "spikes": spikes_sent(model, work),
        }

    return run


class Rising:
    """The first look, every 25 steps on 256 training rows, at which 60 % and 80 % are right.

    A network that never comes there counts as if it did at its last step.
    """

    def __init__(self, model: nn.Module, work: Split) -> None:
        self.model, self.work = model, work
        self.reached: dict[int, int] = {}

    def __call__(self, step: int, loss: float) -> None:
        if step % 25 == 0 and 80 not in self.reached:
            right = 100 * accuracy(self.model, self.work.x[:256], self.work.y[:256])
            for wanted in (60, 80):
                if right >= wanted:
                    self.reached.setdefault(wanted, step)
            self.model.train()


def spikes_sent(model: nn.Module, work: Split) -> float:
    """Spikes that the network sends for a test image: the proxy of energy on hardware."""
    total = 0.0
    handles = []

    def count(_: nn.Module, inputs: object, output: torch.Tensor) -> None:
        nonlocal total
        total += float(output.sum())

    from armillary.neuro.spikeinit.neurons import LIF
    from armillary.neuro.spikeinit.peers import MPBNNeuron

    for part in model.modules():
        if isinstance(part, (LIF, MPBNNeuron)):
            handles.append(part.register_forward_hook(count))
    rows = work.x_test[:200]
    model.eval()
    with torch.no_grad():
        model(rows)
    for handle in handles:
        handle.remove()
    return total / len(rows)


def clothes(cell: Cell) -> Split:
    """Fashion-MNIST at the case's size."""
    rows = int(cell.case.x["rows"])
    return fashion(cell.seed, int(cell.case.x["side"]), rows, min(2_000, rows))


def contenders(family: Family, names: tuple[str, ...]) -> tuple[Contender, ...]:
    return tuple(Contender(name, trained(name, family)) for name in names)
