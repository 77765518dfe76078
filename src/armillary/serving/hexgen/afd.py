"""Attention and feed-forward blocks of a Llama-like model in processes of their own, over gloo.

Attention workers hold embeddings, norms, attention, KV caches and the head; feed-forward workers
hold the gated blocks only. In every layer a micro-batch's normed states go to a feed-forward worker
and its answer comes back; with m micro-batches an attention worker goes on with the next one while
the others are away. A feed-forward worker takes the same micro-batch of all its attention workers
as one batch, and so waits for the slowest.

Decoding is greedy; the tokens are those of the model in one process.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import tempfile
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

#: Seconds that workers wait for each other before they give up.
PATIENCE_S = 120.0

# Shapes: b rows of a micro-batch, s new tokens, S cached tokens, d hidden, h heads, g KV heads, e
# head width.


@dataclasses.dataclass(frozen=True)
class AfdRun:
    """What a group did.

    Attributes:
        tokens: new tokens of each prompt.
        seconds: of all decode steps (prompts apart).
        steps: decode steps.
        cycle_s: mean seconds between micro-batches in a layer: seconds / (steps · layers · m).
        attention_s, ffn_s: mean seconds of computing for one micro-batch in one layer.
    """

    tokens: list[list[int]]
    seconds: float
    steps: int
    cycle_s: float
    attention_s: float
    ffn_s: float

    @property
    def tokens_per_second(self) -> float:
        """New tokens a second of all prompts."""
        return self.steps * len(self.tokens) / max(self.seconds, 1e-12)


def predicted_cycle(attention_s: float, ffn_s: float, link_s: float, micro: int) -> float:
    """The planner's cycle: what is busy longest, or a round trip shared by m micro-batches."""
    trip = attention_s + ffn_s + 2 * link_s
    return max(attention_s + link_s, ffn_s + link_s, trip / micro)


class AfdGroup:
    """A group of workers that stays up between runs; use it as a context.

    Args:
        folder: a Hugging Face model folder (Llama architecture) with safetensors.
        n_attn, n_ffn: workers of each kind; attention worker i sends to feed-forward worker
            i mod n_ffn.
        threads: of each worker.

    Raises:
        ValueError: the architecture is another, or a count is below 1.
        RuntimeError: a worker died; its message is passed on, and no process is left.
    """

    def __init__(
        self, folder: str | Path, n_attn: int = 1, n_ffn: int = 1, *, threads: int = 1
    ) -> None:
        if n_attn < 1 or n_ffn < 1 or n_ffn > n_attn:
            raise ValueError(
                f"n_attn={n_attn}, n_ffn={n_ffn}: both must be 1 at least, and no more ffn than "
                "attention workers"
            )
        self.folder = Path(folder)
        self.n_attn, self.n_ffn = n_attn, n_ffn
        self.layers = _layers(self.folder)
        self._meeting = tempfile.TemporaryDirectory(prefix="armillary-afd-")
        context = multiprocessing.get_context("spawn")
        self._pipes, self._workers = [], []
        store = f"file://{self._meeting.name}/store"
        for rank in range(n_attn + n_ffn):
            ours, theirs = context.Pipe()
            worker = context.Process(
                target=_main, daemon=True,
                args=(theirs, str(self.folder), store, rank, n_attn, n_ffn, threads),
            )  # fmt: skip
            worker.start()
            theirs.close()
            self._pipes.append(ours)
            self._workers.append(worker)
        try:
            self._answers()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> AfdGroup:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End every worker."""
        for pipe in self._pipes:
            try:
                pipe.send(None)
            except OSError:
                continue
        for worker in self._workers:
            worker.join(5)
            if worker.is_alive():
                worker.kill()
                worker.join(5)
        for pipe in self._pipes:
            pipe.close()
        self._pipes, self._workers = [], []
        self._meeting.cleanup()

    def run(
        self, prompts: Sequence[Sequence[int]], max_tokens: int, microbatches: int = 2
    ) -> AfdRun:
        """Greedy tokens of every prompt.

        Args:
            prompts: token ids; one row each.
            max_tokens: new tokens of each; none ends early.
            microbatches: m; each attention worker's prompts are dealt over so many.

        Raises:
            ValueError: too few prompts for the workers and micro-batches, or none of a length.
        """
        parts = self.n_attn * microbatches
        if microbatches < 1 or max_tokens < 2:
            raise ValueError("microbatches must be 1 at least, max_tokens 2")
        if len(prompts) % parts or not prompts:
            raise ValueError(
                f"{len(prompts)} prompts cannot be dealt evenly over {self.n_attn} attention "
                f"workers with {microbatches} micro-batches each"
            )
        if any(not len(p) for p in prompts):
            raise ValueError("prompts: each needs one token at least")
        rows = len(prompts) // parts
        width = max(len(p) for p in prompts)
        order = [
            [list(range((w * microbatches + j) * rows, (w * microbatches + j + 1) * rows))
             for j in range(microbatches)]
            for w in range(self.n_attn)
        ]  # fmt: skip
        job = (rows, width, microbatches, max_tokens)
        for rank, pipe in enumerate(self._pipes):
            mine = None
            if rank < self.n_attn:
                mine = [[list(prompts[i]) for i in batch] for batch in order[rank]]
            pipe.send((job, mine))
        answers = self._answers()
        tokens: list[list[int]] = [[] for _ in prompts]
        for w in range(self.n_attn):
            for batch, found in zip(order[w], answers[w]["tokens"], strict=True):
                for i, row in zip(batch, found, strict=True):
                    tokens[i] = row
        attention = answers[: self.n_attn]
        ffn = answers[self.n_attn :]
        steps = max_tokens - 1
        seconds = max(a["seconds"] for a in attention)
        return AfdRun(
            tokens, seconds, steps, seconds / (steps * self.layers * microbatches),
            sum(a["busy"] for a in attention) / len(attention),
            sum(f["busy"] for f in ffn) / len(ffn),
        )  # fmt: skip

    def _answers(self) -> list[Any]:
        found = []
        for pipe, worker in zip(self._pipes, self._workers, strict=True):
            deadline = time.monotonic() + PATIENCE_S
            while not pipe.poll(0.2):
                if not worker.is_alive() or time.monotonic() > deadline:
                    raise RuntimeError(
                        f"worker {len(found)} of the group "
                        f"{'ended' if not worker.is_alive() else 'does not answer'}"
                    )
            try:
                answer = pipe.recv()
            except EOFError:
                raise RuntimeError(f"worker {len(found)} of the group ended") from None
            if isinstance(answer, str):
                raise RuntimeError(f"worker {len(found)} of the group: {answer}")
            found.append(answer)
        return found


def run(
    folder: str | Path,
    n_attn: int,
    n_ffn: int,
    microbatches: int,
    prompts: Sequence[Sequence[int]],
    max_tokens: int,
) -> AfdRun:
    """One run of a group that is made for it; see `AfdGroup`."""
    with AfdGroup(folder, n_attn, n_ffn) as group:
        return group.run(prompts, max_tokens, microbatches)


def monolithic(
    folder: str | Path, prompts: Sequence[Sequence[int]], max_tokens: int
) -> list[list[int]]:
    """The same greedy tokens from the whole model in this process, prompt by prompt."""
    model = _load(Path(folder))
    found = []
    with torch.inference_mode():
        for prompt in prompts:
            whole = model.generate(
                torch.tensor([list(prompt)]), max_new_tokens=max_tokens,
                min_new_tokens=max_tokens, do_sample=False, eos_token_id=None, pad_token_id=0,
            )  # fmt: skip
            found.append(whole[0, len(prompt) :].tolist())
    return found


def _layers(folder: Path) -> int:
    from transformers import AutoConfig

    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"{str(folder)!r}: there is no model (config.json)")
    config = AutoConfig.from_pretrained(folder)
    if config.model_type != "llama":
        raise ValueError(
            f"{folder.name}: architecture {config.model_type!r}; only Llama's can be split so far"
        )
    return int(config.num_hidden_layers)


def _load(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    from armillary.models.silence import quiet_transformers

    with quiet_transformers():
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model.eval()


def _main(
    pipe: Any, folder: str, store: str, rank: int, n_attn: int, n_ffn: int, threads: int
) -> None:
    """A worker: set up, then jobs until None comes."""
    try:
        torch.set_num_threads(threads)
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        dist.init_process_group(
            "gloo", init_method=store, rank=rank, world_size=n_attn + n_ffn,
            timeout=timedelta(seconds=PATIENCE_S),
        )  # fmt: skip
        model = _load(Path(folder))
        worker: Any
        if rank < n_attn:
            worker = _Attention(model, n_attn + rank % n_ffn)
        else:
            senders = [w for w in range(n_attn) if w % n_ffn == rank - n_attn]
            worker = _FeedForward(model.model, senders)
        dist.barrier()
        pipe.send({})
        while (message := pipe.recv()) is not None:
            with torch.inference_mode():
                pipe.send(worker.work(*message))
    except EOFError:
        pass  # the parent has gone
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}")
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


class _FeedForward:
    """Holds the gated blocks of all layers, nothing else."""

    def __init__(self, model: Any, senders: list[int]) -> None:
        self.blocks = [layer.mlp for layer in model.layers]
        self.hidden = model.config.hidden_size
        self.senders = senders

    def work(self, job: tuple[int, int, int, int], _: None) -> dict[str, float]:
        rows, width, micro, steps = job
        spent, count = 0.0, 0
        for step in range(steps):
            tokens = rows * width if step == 0 else rows
            for block in self.blocks:
                for _j in range(micro):
                    parts = [torch.empty(tokens, self.hidden) for _ in self.senders]
                    waits = [dist.irecv(p, s) for p, s in zip(parts, self.senders, strict=True)]
                    for wait in waits:
                        assert wait is not None
                        wait.wait()
                    start = time.perf_counter()
                    answer = block(torch.cat(parts))
                    if step:
                        spent, count = spent + time.perf_counter() - start, count + 1
                    for part, sender in zip(answer.split(tokens), self.senders, strict=True):
                        dist.send(part.contiguous(), sender)
        return {"busy": spent / max(count, 1)}


@dataclasses.dataclass
class _Batch:
    """A micro-batch on its attention worker."""

    ids: Tensor  # (b, s) tokens to take in next
    position: Tensor  # (b, s) their places
    known: Tensor  # (b, S) which cached places are real
    keys: list[Tensor]  # (b, g, S, e) by layer
    values: list[Tensor]
    tokens: list[Tensor]  # (b,) by step
    state: Tensor = dataclasses.field(default_factory=lambda: torch.empty(0))  # (b, s, d)
    sent: Any = None
    answer: Tensor = dataclasses.field(default_factory=lambda: torch.empty(0))
    coming: Any = None


class _Attention:
    """Holds embeddings, norms, attention with its caches, and the head."""

    def __init__(self, model: Any, peer: int) -> None:
        self.model, self.peer = model, peer
        for layer in model.model.layers:
            layer.mlp = nn.Identity()  # those weights live elsewhere
        self.config = model.config

    def work(
        self, job: tuple[int, int, int, int], prompts: list[list[list[int]]]
    ) -> dict[str, Any]:
        _, width, _, steps = job
        batches = [self._start(part, width) for part in prompts]
        self.busy, self.count, began = 0.0, 0, 0.0
        for step in range(steps):
            if step == 1:
                began, self.busy, self.count = time.perf_counter(), 0.0, 0
            self._step(batches)
        seconds = time.perf_counter() - began
        return {
            "tokens": [torch.stack(b.tokens, 1).tolist() for b in batches],
            "seconds": seconds,
            "busy": self.busy / max(self.count, 1),
        }

    def _start(self, prompts: list[list[int]], width: int) -> _Batch:
        """Left-padded prompts with an empty cache."""
        ids = torch.tensor([[0] * (width - len(p)) + p for p in prompts])
        real = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts]).bool()
        place = (real.long().cumsum(1) - 1).clamp(min=0)
        return _Batch(ids, place, real, [], [], [])

    def _step(self, batches: list[_Batch]) -> None:
        """One token for every row: micro-batches take turns in each layer."""
        for batch in batches:
            batch.state = self.model.model.embed_tokens(batch.ids)
        for i in range(self.config.num_hidden_layers):
            for batch in batches:
                if i:
                    self._take(batch)
                start = time.perf_counter()
                normed = self._attend(i, batch)
                self.busy, self.count = self.busy + time.perf_counter() - start, self.count + 1
                self._send(batch, normed)
        for batch in batches:
            self._take(batch)
            logits = self.model.lm_head(self.model.model.norm(batch.state[:, -1]))
            token = logits.argmax(-1)
            batch.tokens.append(token)
            batch.ids = token[:, None]
            batch.position = batch.position[:, -1:] + 1
            batch.known = torch.cat([batch.known, batch.known.new_ones(len(token), 1)], 1)

    def _send(self, batch: _Batch, normed: Tensor) -> None:
        out = normed.reshape(-1, self.config.hidden_size).contiguous()
        batch.answer = torch.empty_like(out)
        batch.sent = (dist.isend(out, self.peer), out)
        batch.coming = dist.irecv(batch.answer, self.peer)

    def _take(self, batch: _Batch) -> None:
        batch.sent[0].wait()
        batch.coming.wait()
        batch.state = batch.state + batch.answer.view_as(batch.state)

    def _attend(self, i: int, batch: _Batch) -> Tensor:
        """Attention of a layer with its residual; returns the normed input of the other block."""
        layer = self.model.model.layers[i]
        attention = layer.self_attn
        x = layer.input_layernorm(batch.state)
        b, s, _ = x.shape
        e = attention.head_dim

        def heads(y: Tensor) -> Tensor:
            return y.view(b, s, -1, e).transpose(1, 2)

        query, key, value = (
            heads(f(x)) for f in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        cos, sin = self.model.model.rotary_emb(x, batch.position)
        query, key = _turn(query, cos, sin), _turn(key, cos, sin)
        if len(batch.keys) <= i:
            batch.keys.append(key)
            batch.values.append(value)
        else:
            batch.keys[i] = torch.cat([batch.keys[i], key], 2)
            batch.values[i] = torch.cat([batch.values[i], value], 2)
        keys, values = batch.keys[i], batch.values[i]
        mask = batch.known[:, None, None, :].expand(b, 1, s, -1)
        if s > 1:
            causal = torch.ones(s, s, dtype=torch.bool).tril()
            # A padded row looks at itself, so that no softmax is empty.
            mask = (mask & causal) | torch.eye(s, dtype=torch.bool)
        out = nn.functional.scaled_dot_product_attention(query, keys, values, mask, enable_gqa=True)
        out = attention.o_proj(out.transpose(1, 2).reshape(b, s, -1))
        batch.state = batch.state + out
        return layer.post_attention_layernorm(batch.state)


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of (b, h, s, e) by (b, s, e)."""
    first, second = x.chunk(2, -1)
    return x * cos[:, None] + torch.cat([-second, first], -1) * sin[:, None]
