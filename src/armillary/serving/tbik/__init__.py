"""TBIK: the same bits out of a language model at any batch, padding, chunking and number of ranks.

    from armillary.serving.tbik import audit, logprobs, make_invariant

    make_invariant(model)                          # a Llama, Mistral, Qwen2 or Qwen3, in place
    model.generate(ids, max_new_tokens=32)         # as before; its bits no longer move
    logprobs(model, ids)                           # what a trainer needs, equal to the rollout's
    audit(model, prompts, tp=(1, 2, 3)).invariant  # on real processes

Source: "Deterministic Inference across Tensor Parallel Sizes That Eliminates Training-Inference
Mismatch", ICML 2026 (arXiv 2511.17826). Leaves in float32, any number of ranks, the CPU kernels and
the parts around the products are ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.lazy import attach

if TYPE_CHECKING:
    from armillary.serving.tbik.audit import AuditReport as AuditReport
    from armillary.serving.tbik.audit import audit as audit
    from armillary.serving.tbik.dist import GroupExchange as GroupExchange
    from armillary.serving.tbik.dist import SharedMemoryExchange as SharedMemoryExchange
    from armillary.serving.tbik.dist import tree_all_reduce as tree_all_reduce
    from armillary.serving.tbik.hf import UnsupportedModelError as UnsupportedModelError
    from armillary.serving.tbik.hf import logprobs as logprobs
    from armillary.serving.tbik.hf import make_invariant as make_invariant
    from armillary.serving.tbik.modules import TreeLinear as TreeLinear
    from armillary.serving.tbik.ops import PackedWeight as PackedWeight
    from armillary.serving.tbik.ops import pack as pack
    from armillary.serving.tbik.ops import tree_linear as tree_linear
    from armillary.serving.tbik.ops import tree_parts as tree_parts
    from armillary.serving.tbik.plan import PlanMismatchError as PlanMismatchError
    from armillary.serving.tbik.plan import TreePlan as TreePlan
    from armillary.serving.tbik.ranks import run_ranks as run_ranks
    from armillary.serving.tbik.sampling import RequestSampler as RequestSampler

_HOMES = {
    "AuditReport": "audit",
    "GroupExchange": "dist",
    "PackedWeight": "ops",
    "PlanMismatchError": "plan",
    "RequestSampler": "sampling",
    "SharedMemoryExchange": "dist",
    "TreeLinear": "modules",
    "TreePlan": "plan",
    "UnsupportedModelError": "hf",
    "audit": "audit",
    "logprobs": "hf",
    "make_invariant": "hf",
    "pack": "ops",
    "run_ranks": "ranks",
    "tree_all_reduce": "dist",
    "tree_linear": "ops",
    "tree_parts": "ops",
}

__all__ = list(_HOMES)

__getattr__ = attach(__name__, _HOMES, slug="tbik", extra="serving")
