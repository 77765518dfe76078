"""GEMQ: shrink a mixture of experts by one bit budget for all its experts, then tune its routers.

    from armillary.serving.gemq import RouterFT, allocate, collect, quantize

    importance = collect(model, tokens, bits=(2, 3, 4))    # one backward pass a sequence
    plan = allocate(importance, avg_bits=3.0)              # widths, with a proven gap
    small = quantize(model, plan, tokens, router_ft=RouterFT())
    small.save("small/")                                   # AutoModelForCausalLM loads it

Source: "GEMQ: Global Expert-Level Mixed-Precision Quantization for MoE LLMs", ICML 2026
(arXiv 2605.23078). True bytes, the trust region, the solver and the CPU kernel are ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.lazy import attach

if TYPE_CHECKING:
    from armillary.serving.gemq.allocation import BitPlan as BitPlan
    from armillary.serving.gemq.allocation import allocate as allocate
    from armillary.serving.gemq.allocation import uniform_plan as uniform_plan
    from armillary.serving.gemq.evaluation import Reference as Reference
    from armillary.serving.gemq.evaluation import evaluate as evaluate
    from armillary.serving.gemq.hf import GemqConfig as GemqConfig
    from armillary.serving.gemq.hf import register as register
    from armillary.serving.gemq.hf import to_dense as to_dense
    from armillary.serving.gemq.importance import Importance as Importance
    from armillary.serving.gemq.importance import collect as collect
    from armillary.serving.gemq.layouts import UnsupportedModelError as UnsupportedModelError
    from armillary.serving.gemq.moefication import moefy as moefy
    from armillary.serving.gemq.quantization import QuantizedMoE as QuantizedMoE
    from armillary.serving.gemq.quantization import quantize as quantize
    from armillary.serving.gemq.router_ft import RouterFT as RouterFT
    from armillary.serving.gemq.router_ft import tune_routers as tune_routers
    from armillary.serving.gemq.text import sequences as sequences
    from armillary.serving.gemq.trust import choose_trust as choose_trust
    from armillary.serving.gemq.trust import progressive as progressive

_HOMES = {
    "BitPlan": "allocation",
    "GemqConfig": "hf",
    "Importance": "importance",
    "QuantizedMoE": "quantization",
    "Reference": "evaluation",
    "RouterFT": "router_ft",
    "UnsupportedModelError": "layouts",
    "allocate": "allocation",
    "choose_trust": "trust",
    "collect": "importance",
    "evaluate": "evaluation",
    "moefy": "moefication",
    "progressive": "trust",
    "quantize": "quantization",
    "register": "hf",
    "sequences": "text",
    "to_dense": "hf",
    "tune_routers": "router_ft",
    "uniform_plan": "allocation",
}

__all__ = list(_HOMES)

__getattr__ = attach(__name__, _HOMES, slug="gemq", extra="serving")
