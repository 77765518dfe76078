"""Greedy generation in settings that should not matter, on any number of ranks, with its logits."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from armillary.serving.tbik import hf, ops, peers


@dataclasses.dataclass(frozen=True)
class Setting:
    """How prompts are run: what must not change an answer.

    Attributes:
        tp: ranks.
        batch: prompts together.
        chunk: tokens of a prefill chunk; 0: the prompt at once.
        padding: tokens of padding on the left beyond what the batch needs.
        shuffled: whether prompts are batched in another order.
        transport: ``shm`` or ``gloo``.
    """

    tp: int = 1
    batch: int = 1
    chunk: int = 0
    padding: int = 0
    shuffled: bool = False
    transport: str = "shm"

    def __str__(self) -> str:
        parts = [f"tp={self.tp}", f"batch={self.batch}"]
        parts += [f"chunk={self.chunk}"] if self.chunk else []
        parts += [f"padding={self.padding}"] if self.padding else []
        parts += ["shuffled"] if self.shuffled else []
        parts += ["gloo"] if self.transport == "gloo" and self.tp > 1 else []
        return " ".join(parts)


@dataclasses.dataclass(frozen=True)
class Answer:
    """What one prompt got.

    Attributes:
        tokens: (n,) what was generated.
        logprobs: (n,) log-probability of each, float32.
        sha256: of all logits' bytes.
        layers: name of a module -> SHA-256 of its output for the prompt's last token, if asked for.
        unfinite: how many logits are NaN or infinite.
    """

    tokens: np.ndarray[Any, Any]
    logprobs: np.ndarray[Any, Any]
    sha256: str
    layers: dict[str, str] = dataclasses.field(default_factory=dict)
    unfinite: int = 0


def load(folder: str | Path, dtype: torch.dtype) -> Any:
    """A causal language model from a folder, for inference."""
    from transformers import AutoModelForCausalLM

    with _quiet():
        model = AutoModelForCausalLM.from_pretrained(
            str(folder), dtype=dtype, local_files_only=True, trust_remote_code=False
        )
    return model.eval().requires_grad_(False)


def prepared(model: Any, backend: str, group: Any) -> Any:
    """A loaded model under a backend: ``tbik``, a rival of `peers`, or an ablation."""
    if backend == "tbik":
        return hf.make_invariant(model, group=group)
    if backend.startswith("tbik:"):
        return hf.make_invariant(model, group=group, wire_dtype=getattr(torch, backend[5:]))
    if backend in peers.BACKENDS:
        return peers.make_plain(model, backend, group=group)
    if backend in peers.ABLATIONS:
        return peers.make_ablated(model, backend, group=group)
    known = ("tbik", *peers.BACKENDS, *peers.ABLATIONS)
    raise ValueError(f"backend={backend!r}: it must be one of {', '.join(known)}")


def generate(
    model: Any,
    prompts: Sequence[Sequence[int]],
    new_tokens: int,
    setting: Setting,
    *,
    layers: bool = False,
    seed: int = 0,
) -> list[Answer]:
    """Greedy answers to prompts, in the order of the prompts.

    Args:
        model: prepared; on every rank the same call.
        prompts: token ids, each at least one.
        new_tokens: how many tokens are generated for each, whatever they are.
        setting: batch, chunks, padding, order.
        layers: also hash what every replicated module gives for the prompt's last token.
        seed: of the shuffled order.
    """
    order = list(range(len(prompts)))
    if setting.shuffled:
        order = np.random.default_rng(seed).permutation(len(prompts)).tolist()
    answers: dict[int, Answer] = {}
    for start in range(0, len(order), setting.batch):
        some = order[start : start + setting.batch]
        found = _batch(model, [prompts[i] for i in some], new_tokens, setting, layers)
        answers.update(zip(some, found, strict=True))
    return [answers[i] for i in range(len(prompts))]


def _batch(
    model: Any, prompts: Sequence[Sequence[int]], new_tokens: int, setting: Setting, layers: bool
) -> list[Answer]:
    width = max(len(p) for p in prompts) + setting.padding
    ids = torch.zeros(len(prompts), width, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = torch.tensor(list(prompt))
        mask[row, width - len(prompt) :] = 1
    settings: dict[str, Any] = {"prefill_chunk_size": setting.chunk} if setting.chunk else {}
    watched = _Watch(model, len(prompts), width) if layers else None
    with torch.no_grad(), _quiet():
        found = model.generate(
            input_ids=ids, attention_mask=mask, do_sample=False, max_new_tokens=new_tokens,
            min_new_tokens=None, eos_token_id=None, pad_token_id=0, output_logits=True,
            return_dict_in_generate=True, **settings,
        )  # fmt: skip
    if watched is not None:
        watched.stop()
    logits = torch.stack([step.float() for step in found.logits], 1)
    tokens = found.sequences[:, width:]
    chosen = ops.log_softmax(logits).gather(-1, tokens[..., None]).squeeze(-1)
    return [
        Answer(
            tokens[i].numpy().copy(),
            chosen[i].numpy().copy(),
            digest(logits[i]),
            watched.hashes[i] if watched is not None else {},
            int((~torch.isfinite(logits[i])).sum()),
        )
        for i in range(len(prompts))
    ]


def _quiet() -> Any:
    from armillary.models.silence import quiet_transformers

    return quiet_transformers()


def digest(x: Tensor) -> str:
    """SHA-256 of a tensor's bytes."""
    x = x.detach().contiguous()
    raw = x.view(torch.uint8) if x.dim() else x.reshape(1).view(torch.uint8)
    return hashlib.sha256(raw.numpy().tobytes()).hexdigest()


#: Modules whose output every rank holds whole.
_WHOLE = ("embed_tokens", "input_layernorm", "post_attention_layernorm", "o_proj", "down_proj",
          "lm_head", "norm")  # fmt: skip


class _Watch:
    """Hash what modules give for the last token of the prompt, until the first new token is out.

    Only modules whose output every rank holds whole are watched: embeddings, norms of the hidden
    state, both halves of each block, the block, and the logits.
    """

    def __init__(self, model: Any, rows: int, width: int) -> None:
        self._left = width  # tokens of the prompt that are still to come
        self.hashes: list[dict[str, str]] = [{} for _ in range(rows)]
        self._handles = []
        for name, module in model.named_modules():
            last = name.split(".")[-1]
            parent = name.split(".")[-2] if "." in name else ""
            if last in _WHOLE or parent == "layers":
                self._handles.append(module.register_forward_hook(self._hook(name)))

    def _hook(self, name: str) -> Any:
        def hook(module: Any, inputs: Any, output: Any) -> None:
            value = output[0] if isinstance(output, tuple) else output
            for row, hashes in enumerate(self.hashes):
                hashes[name] = digest(value[row, -1])
            if name.endswith("embed_tokens"):
                self._left -= value.shape[1]
            if name == "lm_head" and self._left <= 0:
                self.stop()

        return hook

    def stop(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles = []


def copied(model: Any) -> Any:
    """The modules of a model anew, over the same weights."""
    shared = {id(p): p for p in (*model.parameters(), *model.buffers())}
    return copy.deepcopy(model, shared)


def on_ranks(
    group: Any, folder: str, dtype: str, backend: str, prompts: Sequence[Sequence[int]],
    new_tokens: Sequence[int], settings: Sequence[Setting], layers: bool = False, seed: int = 0,
) -> list[list[Answer]] | None:  # fmt: skip
    """One rank's work: load once; for every number of ranks, cut and generate; rank 0 answers.

    Args:
        group: the exchange of all ranks; the first ``tp`` of them share a model.
        folder, dtype, backend: see `load` and `prepared`.
        prompts: token ids.
        new_tokens: for each setting, or for all.
        settings: what to run.
        layers, seed: see `generate`.
    """
    loaded = load(folder, getattr(torch, dtype))
    lengths = list(new_tokens) * (len(settings) if len(new_tokens) == 1 else 1)
    found: dict[int, list[Answer]] = {}
    for tp, transport in sorted({(s.tp, s.transport) for s in settings}):
        exchange = subgroup(group, tp, transport)
        if exchange is None:
            continue
        model = prepared(copied(loaded), backend, exchange)
        for i, setting in enumerate(settings):
            if (setting.tp, setting.transport) == (tp, transport):
                found[i] = generate(model, prompts, lengths[i], setting, layers=layers, seed=seed)
    return [found[i] for i in range(len(settings))] if group.rank == 0 else None


def subgroup(group: Any, tp: int, transport: str) -> Any:
    """The exchange of the first ``tp`` ranks, or None on the others; every rank must call it."""
    import torch.distributed as dist

    from armillary.serving.tbik.dist import Alone, GroupExchange, SharedMemoryExchange

    members = dist.new_group(list(range(tp))) if tp > 1 else None
    if group.rank >= tp:
        return None
    if members is None:
        return Alone()
    return SharedMemoryExchange(members) if transport == "shm" else GroupExchange(members)
