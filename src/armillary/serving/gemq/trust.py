"""How far the plan may leave a layer-wise one, chosen by measurement; and re-estimation in stages.

Coefficients add up damages as if experts were rounded one at a time. Across layers that can be
badly wrong, so that each layer's mean bits are capped at the average plus delta, and delta is the
one whose quantised model diverges least from the full one on text that was held back from
calibration. Delta = 0 is layer-wise allocation: on that text the choice is never worse than it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from armillary.serving.gemq.allocation import BitPlan, candidates
from armillary.serving.gemq.evaluation import Reference, evaluate, log_ppl
from armillary.serving.gemq.importance import Importance, collect
from armillary.serving.gemq.quantization import Quantizer, round_layers
from armillary.serving.gemq.router_ft import RouterFT, tune_routers

DELTAS = (0.0, 0.25, 0.5, 1.0, math.inf)
Bar = Callable[[Iterable[Any]], Iterable[Any]]


class Choice(NamedTuple):
    """A plan, and what each cap gave on the held-out text (nats a token), by delta."""

    plan: BitPlan
    kl: dict[float, float]


def fake(
    model: Any, plan: BitPlan, tokens: Tensor, quantizer: Quantizer = "gptq", *,
    sequential: bool = True,
) -> Any:  # fmt: skip
    """A copy whose experts hold the rounded values as plain numbers: quicker to run on long text
    than packed ones, and of the same values. Other layers are left alone."""
    work = copy.deepcopy(model).eval().requires_grad_(False)
    round_layers(work, plan, {}, tokens, quantizer=quantizer, sequential=sequential)
    return work


def choose_trust(
    model: Any,
    importance: Importance,
    tokens: Tensor,
    held_out: Tensor,
    *,
    avg_bits: float,
    deltas: Sequence[float] = DELTAS,
    quantizer: Quantizer = "rtn",
    bar: Bar = iter,
) -> Choice:
    """The plan whose quantised model diverges least from the full one on held-out text.

    Args:
        model: at full precision.
        importance: from `collect`.
        tokens: (N, T) calibration text (for GPTQ).
        held_out: (M, T) calibration text that ``importance`` has not seen.
        avg_bits: the budget.
        deltas: caps on a layer's mean bits above the average; infinity: none.
        quantizer: how the candidates are rounded.
        bar: wraps the candidates, for a progress bar.
    """
    reference = Reference.of(model, held_out)
    measured: list[tuple[float, BitPlan]] = []
    kl: dict[float, float] = {}
    plans = candidates(importance, avg_bits, deltas)
    for plan in bar(plans):
        found = evaluate(fake(model, plan, tokens, quantizer), reference)["kl"]
        measured.append((found, plan))
        kl[math.inf if plan.trust is None else plan.trust] = found
    return Choice(min(measured, key=lambda pair: pair[0])[1], kl)


class Stage(NamedTuple):
    """One round of re-estimation."""

    avg_bits: float
    plan: BitPlan
    held_out_loss: float


def progressive(
    model: Any,
    tokens: Tensor,
    held_out: Tensor,
    *,
    avg_bits: float,
    budgets: Sequence[float] = (3.0, 2.5, 2.0),
    bits: Sequence[int] = (1, 2, 3),
    group: int | None = None,
    quantizer: Quantizer = "gptq",
    router_ft: RouterFT | None = None,
    trust: float | None = None,
    bar: Bar = iter,
) -> tuple[BitPlan, list[Stage]]:
    """A plan for ``avg_bits`` whose importance was measured again on models of falling budgets.

    After each stage gradients and inputs are those of the quantised (and tuned) model, while the
    target stays the full model's experts. A stage's coefficients are judged by the held-out loss of
    their plan at ``avg_bits``; the first stage that does not improve it is the last.

    Args:
        model: at full precision.
        tokens, held_out: (N, T) calibration text, and such that chooses.
        avg_bits: the budget of the plan that is returned.
        budgets: falling budgets of the models on which importance is measured again.
        bits, group: as in `collect`.
        quantizer: how models are rounded.
        router_ft: tuning of each stage's routers; None: none.
        trust: as in `allocate`.
        bar: wraps the stages, for a progress bar.

    Returns:
        The best plan and all stages; the first stage's importance is that of the full model.
    """
    from armillary.serving.gemq.allocation import allocate

    stages: list[Stage] = []
    current = model
    for i, budget in enumerate(bar([math.inf, *(b for b in budgets if b > avg_bits)])):
        importance = collect(
            current, tokens, bits=bits, group=group, reference=None if i == 0 else model
        )
        plan = allocate(importance, avg_bits=avg_bits, trust=trust)
        loss = log_ppl(fake(model, plan, tokens, quantizer), held_out)
        stages.append(Stage(budget, plan, loss))
        if i and loss >= stages[-2].held_out_loss:
            break
        following = [b for b in budgets if avg_bits < b < budget]
        if not following:
            break
        step = allocate(importance, avg_bits=min(max(following), max(bits)), trust=trust)
        current = fake(model, step, tokens, quantizer)
        if router_ft is not None:
            with torch.enable_grad():
                tune_routers(current, tokens, router_ft, reference=model)
    best = min(stages, key=lambda stage: stage.held_out_loss)
    return best.plan, stages
