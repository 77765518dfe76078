"""A plain training loop: minibatches, SGD or Adam, cosine decay of the learning rate."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch
from torch import Tensor, nn


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How a network is trained.

    Attributes:
        optimiser: ``sgd`` (momentum 0.9, Nesterov) or ``adam``.
        lr: learning rate at the start; it falls to 0 along a cosine.
        steps: number of minibatches.
        batch: size of each.
        weight_decay: of all weights.
        clip: largest norm of the whole gradient, or 0 for none.
        block_scale: factor on the learning rate of parameters inside residual blocks. Steps of
            many branches add up, so that it has to fall with their number (about 50/blocks) while
            the stem and the classifier keep the whole rate.
    """

    optimiser: Literal["sgd", "adam"] = "adam"
    lr: float = 1e-3
    steps: int = 200
    batch: int = 64
    weight_decay: float = 0.0
    clip: float = 0.0
    block_scale: float = 1.0

    def __post_init__(self) -> None:
        if self.optimiser not in ("sgd", "adam"):
            raise ValueError(f"optimiser={self.optimiser!r}: expected 'sgd' or 'adam'")
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise ValueError(f"lr={self.lr!r}: expected a learning rate > 0")
        if not (math.isfinite(self.block_scale) and self.block_scale > 0):
            raise ValueError(f"block_scale={self.block_scale!r}: expected a factor > 0")
        if self.steps < 1 or self.batch < 1:
            raise ValueError(f"steps={self.steps!r}, batch={self.batch!r}: expected at least 1")


def minibatches(rows: int, batch: int, steps: int, seed: int) -> list[Tensor]:
    """Indices of each minibatch: whole passes over the rows, each in a new order."""
    generator = torch.Generator().manual_seed(seed)
    batch = min(batch, rows)
    found: list[Tensor] = []
    while len(found) < steps:
        order = torch.randperm(rows, generator=generator)
        found += [order[i : i + batch] for i in range(0, rows - batch + 1, batch)]
    return found[:steps]


def train(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    recipe: Recipe,
    seed: int,
    *,
    watch: Callable[[int, float], None] | None = None,
    progress: Callable[[list[Tensor]], Iterable[Tensor]] = iter,
) -> list[float]:
    """Train a classifier in place.

    Args:
        model: maps (batch, ...) to logits.
        x: (n, ...) inputs.
        y: (n,) labels.
        recipe: how.
        seed: order of the minibatches.
        watch: called after each step with its number (from 1) and its loss.
        progress: wraps the minibatches, to show a bar.

    Returns:
        The loss of each step.
    """
    groups = _groups(model, recipe)
    if recipe.optimiser == "sgd":
        optimiser: torch.optim.Optimizer = torch.optim.SGD(
            groups,
            recipe.lr,
            momentum=0.9,
            nesterov=True,
            weight_decay=recipe.weight_decay,
        )
    else:
        optimiser = torch.optim.Adam(groups, recipe.lr, weight_decay=recipe.weight_decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, recipe.steps)
    model.train()
    losses = []
    batches = minibatches(len(x), recipe.batch, recipe.steps, seed)
    for step, rows in enumerate(progress(batches), 1):
        optimiser.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
        loss.backward()
        if recipe.clip:
            nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
        optimiser.step()
        schedule.step()
        losses.append(loss.item())
        if watch is not None:
            watch(step, losses[-1])
    return losses


def _groups(model: nn.Module, recipe: Recipe) -> list[dict[str, Any]]:
    """Parameters inside residual blocks, and the others, each with their learning rate."""
    inside = [p for name, p in model.named_parameters() if ".blocks." in f".{name}"]
    known = {id(p) for p in inside}
    others = [p for p in model.parameters() if id(p) not in known]
    groups: list[dict[str, Any]] = [{"params": others, "lr": recipe.lr}] if others else []
    if inside:
        groups.append({"params": inside, "lr": recipe.lr * recipe.block_scale})
    return groups


def accuracy(model: nn.Module, x: Tensor, y: Tensor, batch: int = 500) -> float:
    """Share of rows that are classified right, in evaluation mode."""
    model.eval()
    with torch.no_grad():
        right = [
            int((model(x[i : i + batch]).argmax(-1) == y[i : i + batch]).sum())
            for i in range(0, len(x), batch)
        ]
    return sum(right) / len(x)
