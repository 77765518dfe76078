"""Tune routers after quantisation: tokens that rounding sent elsewhere find better experts.

Only the routers' weights are trained; the choice of experts stays hard, and the gradient flows
through the weights of those that were chosen.

Source: GEMQ (ICML 2026, arXiv 2605.23078), router fine-tuning: AdamW, 1e-4, one epoch, one
sequence at a time. The divergence from the full model (``kd``) is ours.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


@dataclasses.dataclass(frozen=True)
class RouterFT:
    """Settings of router tuning.

    Attributes:
        learning_rate, weight_decay: of AdamW.
        epochs: passes over the text.
        kd: add the divergence from the full-precision model's next-token distribution.
        seed: order of sequences.
    """

    learning_rate: float = 1e-4
    weight_decay: float = 1e-4
    epochs: int = 1
    kd: bool = True
    seed: int = 0


def tune_routers(
    model: Any,
    tokens: Tensor,
    settings: RouterFT,
    *,
    reference: Any = None,
    parameters: Callable[[Any], list[Any]] | None = None,
    bar: Callable[[Iterable[Any]], Iterable[Any]] = iter,
) -> list[float]:
    """Train the routers of a model in place.

    Args:
        model: packed, or with plain rounded weights.
        tokens: (N, T) text.
        settings: how.
        reference: the full-precision model; needed with ``settings.kd``.
        parameters: what to train instead of the routers' weights (for comparisons).
        bar: wraps the steps, for a progress bar.

    Returns:
        The loss of each step, nats a token.

    Raises:
        ValueError: ``kd`` without a reference; a loss that is not a number.
        RuntimeError: something else than the trained weights has changed.
    """
    import torch
    from torch.nn import functional

    from armillary.serving.gemq.layouts import blocks

    if settings.kd and reference is None:
        raise ValueError("kd=True needs reference=, the full-precision model; or give kd=False")
    mine = parameters or (lambda m: [block.router.weight for block in blocks(m)])
    trained = mine(model)
    ids = {id(p) for p in trained}
    rest = {name: p for name, p in model.named_parameters() if id(p) not in ids}
    before = _digest(rest)
    for p in rest.values():
        p.requires_grad = False
    for p in trained:
        p.requires_grad = True
    steps = _Optimiser(trained, settings)
    generator = torch.Generator().manual_seed(settings.seed)
    order = [int(i) for _ in range(settings.epochs)
             for i in torch.randperm(len(tokens), generator=generator)]  # fmt: skip
    losses: list[float] = []
    mode = model.training
    model.eval()
    try:
        for i in bar(order):
            row = tokens[i : i + 1]
            with torch.enable_grad():
                logits = model(input_ids=row, use_cache=False).logits[0].float()
                loss = functional.cross_entropy(logits[:-1], row[0, 1:])
                if settings.kd:
                    with torch.no_grad():
                        target = reference(input_ids=row, use_cache=False).logits[0].float()
                    loss = loss + functional.kl_div(
                        torch.log_softmax(logits, -1), torch.log_softmax(target, -1),
                        log_target=True, reduction="batchmean",
                    )  # fmt: skip
                if not bool(torch.isfinite(loss)):
                    raise ValueError("the loss of router tuning is not a number")
                gradients = torch.autograd.grad(loss, trained, allow_unused=True)
            steps.step(gradients)
            losses.append(float(loss.detach()))
    finally:
        steps.finish()
        for p in trained:
            p.requires_grad = False
        model.train(mode)
    if _digest(rest) != before:
        raise RuntimeError("router tuning has changed other weights than those of the routers")
    return losses


class _Optimiser:
    """AdamW on float32 copies, written back in the parameters' own type after each step."""

    def __init__(self, trained: list[Any], settings: RouterFT) -> None:
        import torch

        self.trained = trained
        self.copies = [p.detach().float().clone().requires_grad_(True) for p in trained]
        self.adam = torch.optim.AdamW(
            self.copies, lr=settings.learning_rate, weight_decay=settings.weight_decay
        )

    def step(self, gradients: Any) -> None:
        for copy, gradient in zip(self.copies, gradients, strict=True):
            copy.grad = None if gradient is None else gradient.float()
        self.adam.step()
        self.finish()

    def finish(self) -> None:
        for p, copy in zip(self.trained, self.copies, strict=True):
            p.data.copy_(copy.detach())


def _digest(parameters: dict[str, Any]) -> str:
    import numpy as np
    import torch

    found = hashlib.sha256()
    for name, p in parameters.items():
        found.update(name.encode())
        flat = p.detach().cpu().contiguous().reshape(-1)
        found.update(np.ascontiguousarray(flat.view(torch.uint8).numpy()).data)
    return found.hexdigest()
