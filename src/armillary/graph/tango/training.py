"""One training loop for the estimator, the command and all contenders of the evidence.

Adam, learning rate from its start to 0 along a cosine, gradients clipped at norm 1: without the
clip and the cosine, runs of deep flows bounce off what they have learnt.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor


@dataclasses.dataclass(frozen=True)
class Schedule:
    """How long and how fast.

    Attributes:
        epochs: passes over the data.
        lr: learning rate at the start.
        weight_decay: of Adam.
        clip: largest norm of all gradients together.
        patience: epochs without a better validation score after which training ends; 0: never.
        every: epochs between two validations.
        enough: training ends when the validation score is at most this; negative: never.
        memory: β₂ of Adam, how long it remembers the size of gradients.
    """

    epochs: int
    lr: float = 5e-3
    weight_decay: float = 0.0
    clip: float = 1.0
    patience: int = 0
    every: int = 1
    enough: float = -1.0
    memory: float = 0.999


def train(
    model: torch.nn.Module,
    losses: Callable[[], Iterable[Tensor]],
    schedule: Schedule,
    score: Callable[[], float] | None = None,
    epochs: Iterator[int] | None = None,
) -> int:
    """Train in place; with ``score``, the weights of the best epoch are kept.

    Args:
        model: what is trained; left in evaluation mode.
        losses: gives the loss of each batch of an epoch, lazily.
        schedule: how long and how fast.
        score: a validation error, lower is better, computed in evaluation mode.
        epochs: what to iterate over in the place of ``range(schedule.epochs)``, such as a progress
            bar around it.

    Returns:
        Epochs that ran.

    Raises:
        FloatingPointError: the loss became NaN or infinite.
    """
    optimiser = torch.optim.Adam(
        model.parameters(),
        lr=schedule.lr,
        betas=(0.9, schedule.memory),
        weight_decay=schedule.weight_decay,
    )
    best, best_epoch, state = math.inf, 0, None
    epoch = 0
    for epoch in epochs if epochs is not None else range(schedule.epochs):
        rate = 0.5 * schedule.lr * (1 + math.cos(math.pi * epoch / schedule.epochs))
        for group in optimiser.param_groups:
            group["lr"] = rate
        model.train()
        total = 0.0
        for loss in losses():
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), schedule.clip)
            optimiser.step()
            total += float(loss.detach())
        if not math.isfinite(total):
            raise FloatingPointError(
                f"the loss is {total} in epoch {epoch}: lower the learning rate (lr="
                f"{schedule.lr:g}) or scale the features"
            )
        last = epoch == schedule.epochs - 1
        if score is not None and (last or epoch % schedule.every == schedule.every - 1):
            model.eval()
            with torch.no_grad():
                found = score()
            if found < best:
                best, best_epoch, state = found, epoch, copy.deepcopy(model.state_dict())
            elif schedule.patience and epoch - best_epoch >= schedule.patience:
                break
            if found <= schedule.enough:
                break
    if state is not None:
        model.load_state_dict(state)
    model.eval()
    return epoch + 1
