"""Tune routers after quantisation: tokens that rounding sent elsewhere find better experts.

Only the routers' weights are trained; the choice of experts stays hard, and the gradient flows
through the weights of those that were chosen.

Source: GEMQ (ICML 2026, arXiv 2605.23078), router fine-tuning: AdamW, 1e-4, one epoch, one
sequence at a time. The divergence from the full model (``kd``) and the fit before (``align``) are
ours.
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
        align: first fit routers to the full model's router logits, by `align_routers`.
        epochs: passes over the text; 0: no training.
        kd: add the divergence from the full-precision model's next-token distribution.
        seed: order of sequences.
    """

    learning_rate: float = 1e-4
    weight_decay: float = 1e-4
    align: bool = True
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
        reference: the full-precision model; needed with ``settings.kd`` and ``settings.align``.
        parameters: what to train instead of the routers' weights (for comparisons).
        bar: wraps the steps, for a progress bar.

    Returns:
        The loss of each step, nats a token.

    Raises:
        ValueError: ``kd`` or ``align`` without a reference; a loss that is not a number.
        RuntimeError: something else than the trained weights has changed.
    """
    import torch
    from torch.nn import functional

    from armillary.serving.gemq.layouts import blocks

    if (settings.kd or settings.align) and reference is None:
        raise ValueError(
            "kd=True and align=True need reference=, the full-precision model; or give False"
        )
    mine = parameters or (lambda m: [block.router.weight for block in blocks(m)])
    trained = mine(model)
    ids = {id(p) for p in trained}
    rest = {name: p for name, p in model.named_parameters() if id(p) not in ids}
    before = _digest(rest)
    if settings.align and parameters is None:
        align_routers(model, tokens, reference)
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


def align_routers(model: Any, tokens: Tensor, reference: Any, strength: float = 1.0) -> None:
    """Fit each router anew to the full model's router logits, in place, in closed form.

    Rounding moves what a router reads; ridge regression from what it reads now to the logits that
    the full model's router gave on the same tokens brings its choices back. Layer after layer, each
    on what the layers before give with their routers fitted.

    Args:
        model: with plain rounded weights or packed.
        tokens: (N, T) text.
        reference: the full-precision model.
        strength: of the pull towards the router as it was.
    """
    import torch

    from armillary.serving.gemq.layouts import blocks, decoder_layers
    from armillary.serving.gemq.quantization import entering, through
    from armillary.serving.gemq.regression import ridge

    with torch.no_grad():
        wanted = _read_by_routers(reference, tokens)
        states, arguments = entering(model, tokens)
        found = {block.layer: (i, block) for i, block in enumerate(blocks(model))}
        for n, layer in enumerate(decoder_layers(model)):
            if n in found:
                i, block = found[n]
                read: list[Tensor] = []
                hook = block.router.register_forward_pre_hook(
                    lambda _, args, read=read: read.append(args[0].detach().flatten(0, -2).float())
                )
                through(layer, states, arguments, n)
                hook.remove()
                full = blocks(reference)[i].router.weight.float()
                weight = ridge(torch.cat(read), wanted[i] @ full.T, full.T, strength)
                block.router.weight.data.copy_(weight.T)
            states = through(layer, states, arguments, n)


def _read_by_routers(model: Any, tokens: Tensor) -> list[Tensor]:
    """What each router reads, over all sequences."""
    import torch

    from armillary.serving.gemq.layouts import blocks

    read: list[list[Tensor]] = [[] for _ in blocks(model)]
    hooks = [
        block.router.register_forward_pre_hook(
            lambda _, args, i=i: read[i].append(args[0].detach().flatten(0, -2).float())
        )
        for i, block in enumerate(blocks(model))
    ]
    try:
        for row in tokens:
            model.model(input_ids=row[None], use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    return [torch.cat(parts) for parts in read]


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
