"""What quantisation has changed: perplexity, divergence, agreement, routing, bytes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


@dataclasses.dataclass(frozen=True)
class Reference:
    """What the full-precision model says of a text, kept so that many models can be compared.

    Attributes:
        tokens: (N, T).
        log_probs: (N, T - 1, V) float16, of the next token.
        chosen: a tensor (N T, k) of experts for each block.
        log_ppl: mean negative log-likelihood, nats a token.
    """

    tokens: Tensor
    log_probs: Tensor
    chosen: list[Tensor]
    log_ppl: float

    @staticmethod
    def of(model: Any, tokens: Tensor) -> Reference:
        """Run the full-precision model once."""
        import torch

        kept, losses, chosen = [], [], []
        for row, log_probs, routes in passes(model, tokens):
            kept.append(log_probs.to(torch.float16))
            losses.append(_nll(log_probs, row))
            chosen.append(routes)
        joined = [torch.cat(parts) for parts in zip(*chosen, strict=True)]
        return Reference(tokens, torch.stack(kept), joined, sum(losses) / len(losses))


def evaluate(
    model: Any,
    reference: Any,
    tokens: Tensor | None = None,
    *,
    bar: Callable[[Iterable[Any]], Iterable[Any]] = iter,
) -> dict[str, float]:
    """Compare a quantised model with the full-precision one.

    Args:
        model: the quantised model.
        reference: the full-precision model, or a `Reference` that was made of it.
        tokens: (N, T) text that neither calibration nor tuning has seen; not needed with a
            `Reference`.
        bar: wraps the sequences, for a progress bar.

    Returns:
        ``log_ppl`` and ``reference_log_ppl`` (nats a token), ``ppl``, ``excess`` (their
        difference), ``kl`` (of the full model from this one, nats a token), ``top1`` (share of
        positions with the same likeliest token), ``overlap`` (mean share of chosen experts that
        are the same), ``set_change`` (share of choices whose set differs), ``expert_bytes``.
    """
    import torch

    if not isinstance(reference, Reference):
        if tokens is None:
            raise ValueError("tokens= is needed unless reference is a Reference")
        reference = Reference.of(reference, tokens)
    nll = divergence = same = 0.0
    chosen = []
    positions = reference.log_probs.shape[0] * reference.log_probs.shape[1]
    rows = zip(bar(passes(model, reference.tokens)), reference.log_probs, strict=True)
    for (row, log_probs, routes), full in rows:
        target = torch.log_softmax(full.float(), -1)
        nll += _nll(log_probs, row)
        divergence += float((target.exp() * (target - log_probs)).sum())
        same += float((target.argmax(-1) == log_probs.argmax(-1)).sum())
        chosen.append(routes)
    overlap, change = routing_change(
        reference.chosen, [torch.cat(parts) for parts in zip(*chosen, strict=True)]
    )
    log_ppl = nll / len(reference.tokens)
    return {
        "log_ppl": log_ppl,
        "reference_log_ppl": reference.log_ppl,
        "ppl": math.exp(min(log_ppl, 700.0)),
        "excess": log_ppl - reference.log_ppl,
        "kl": divergence / positions,
        "top1": same / positions,
        "overlap": overlap,
        "set_change": change,
        "expert_bytes": float(expert_bytes(model)),
    }


def log_ppl(model: Any, tokens: Tensor) -> float:
    """Mean negative log-likelihood of next tokens, nats."""
    losses = [_nll(log_probs, row) for row, log_probs, _ in passes(model, tokens, routes=False)]
    return sum(losses) / len(losses)


def passes(
    model: Any, tokens: Tensor, *, routes: bool = True
) -> Iterable[tuple[Tensor, Tensor, list[Tensor]]]:
    """A sequence at a time: its ids (T), log-probabilities (T - 1, V), chosen experts (T, k) of
    each block."""
    import torch

    from armillary.serving.gemq.layouts import blocks

    chosen: dict[int, Tensor] = {}
    hooks = []
    if routes:
        for i, block in enumerate(blocks(model)):
            hooks.append(
                block.experts.register_forward_pre_hook(
                    lambda _, args, i=i: chosen.__setitem__(i, args[1].detach())
                )
            )
    mode = model.training
    model.eval()
    try:
        for row in tokens:
            with torch.no_grad():
                logits = model(input_ids=row[None], use_cache=False).logits[0, :-1].float()
                log_probs = torch.log_softmax(logits, -1)
            yield row, log_probs, [chosen[i] for i in sorted(chosen)]
    finally:
        for hook in hooks:
            hook.remove()
        model.train(mode)


def _nll(log_probs: Tensor, row: Tensor) -> float:
    return float(-log_probs.gather(-1, row[1:, None]).double().mean())


def routing_change(before: list[Tensor], after: list[Tensor]) -> tuple[float, float]:
    """Mean share of a token's experts that stay, and the share of tokens whose set differs."""
    overlap = change = 0.0
    for a, b in zip(before, after, strict=True):
        kept = (a[:, :, None] == b[:, None, :]).any(-1).float().mean(-1)
        overlap += float(kept.mean())
        change += float((kept < 1).float().mean())
    return overlap / len(before), change / len(before)


def expert_bytes(model: Any) -> int:
    """Bytes that the routed experts take as they lie in memory."""
    from armillary.serving.gemq.layouts import blocks

    return sum(p.numel() * p.element_size() for b in blocks(model) for p in b.experts.parameters())
