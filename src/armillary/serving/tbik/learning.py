"""On-policy learning of a small language model whose rollout engine and trainer may differ.

The game: after a prompt of two tokens, write ``[``, digits whose last is the first prompt token's
digit, and ``]``. Reward is the share of the format that is kept, in [0, 1]. The policy gradient is
REINFORCE with the mean of the prompt's group as baseline; each token's term carries the importance
weight exp(trainer's log-probability - rollout's), clipped at 2, which is exactly 1 where both
agree.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from torch import Tensor

from armillary.serving.tbik import generation, hf, ops
from armillary.serving.tbik.sampling import RequestSampler
from armillary.serving.tbik.tasks import small_config

OPEN, CLOSE, DIGITS, VOCABULARY = 2, 3, 4, 16
LENGTH = 6


@dataclasses.dataclass(frozen=True)
class Course:
    """How long and how fast to learn.

    Attributes:
        steps: updates.
        prompts: prompts a step; each is answered ``group`` times.
        group: answers of one prompt, whose mean reward is the baseline.
        lr: of Adam.
    """

    steps: int = 40
    prompts: int = 8
    group: int = 4
    lr: float = 3e-3


def policy(seed: int) -> Any:
    """A Llama of two layers and 64 features with random weights, in bfloat16."""
    from transformers import LlamaForCausalLM

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = small_config(
            2, hidden=64, heads=4, key_heads=2, width=16, intermediate=128, vocabulary=VOCABULARY
        )
        model: Any = LlamaForCausalLM(config)
        return model.to(torch.bfloat16)


def reward(prompt: Tensor, answer: Tensor) -> Tensor:
    """(batch,) the share of the format that an answer keeps: four parts of a quarter each.

    Args:
        prompt: (batch, 2).
        answer: (batch, `LENGTH`).
    """
    opened = answer[:, 0] == OPEN
    inside = (answer[:, 1:-1] >= DIGITS).all(1)
    closed = answer[:, -1] == CLOSE
    right = answer[:, -2] == prompt[:, 0]
    return (opened.float() + inside.float() + closed.float() + right.float()) / 4


def rollouts(model: Any, prompts: Tensor, seeds: list[int]) -> tuple[Tensor, Tensor]:
    """Sampled answers and their log-probabilities under the rollout engine (batched, cached)."""
    processor = RequestSampler(seeds, prompts.shape[1])
    with torch.no_grad():
        found = model.generate(
            input_ids=prompts, attention_mask=torch.ones_like(prompts), do_sample=False,
            max_new_tokens=LENGTH, eos_token_id=None, pad_token_id=0, output_logits=True,
            return_dict_in_generate=True, logits_processor=[processor],
        )  # fmt: skip
    answer = found.sequences[:, prompts.shape[1] :]
    logits = torch.stack(found.logits, 1).float()
    return answer, ops.log_softmax(logits).gather(-1, answer[..., None]).squeeze(-1)


def learn(backend: str, course: Course, seed: int) -> dict[str, float]:
    """Mean reward over all steps, at the end, and how far rollout and trainer were apart.

    Args:
        backend: ``tbik``, or ``naive`` (plain bfloat16 torch for both).
        course: how long.
        seed: of weights, prompts and draws.
    """
    model = generation.prepared(policy(seed), backend, None)
    optimiser = torch.optim.Adam(model.parameters(), lr=course.lr)
    rng = np.random.default_rng(seed)
    rewards, apart = [], 0.0
    for _ in range(course.steps):
        drawn = rng.integers(DIGITS, VOCABULARY, size=(course.prompts, 2))
        prompts = torch.from_numpy(drawn).repeat_interleave(course.group, 0)
        seeds = [int(s) for s in rng.integers(0, 2**62, size=len(prompts))]
        answer, old = rollouts(model, prompts, seeds)
        found = reward(prompts, answer)
        grouped = found.reshape(course.prompts, course.group)
        advantage = (grouped - grouped.mean(1, keepdim=True)).reshape(-1, 1)
        new = trainer_logprobs(model, backend, torch.cat([prompts, answer], 1))
        weight = torch.exp(new.detach() - old).clamp(max=2.0)
        loss = -(weight * advantage * new).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        rewards.append(float(found.mean()))
        apart = max(apart, float((new.detach() - old).abs().max()))
    tail = max(1, course.steps // 5)
    return {
        "reward": float(np.mean(rewards)),
        "last_reward": float(np.mean(rewards[-tail:])),
        "apart": apart,
    }


def trainer_logprobs(model: Any, backend: str, ids: Tensor) -> Tensor:
    """(batch, `LENGTH`) log-probabilities of the answers, whole sequences, with gradients."""
    if backend == "tbik":
        return hf.logprobs(model, ids)[:, -LENGTH:]
    logits = model(input_ids=ids, use_cache=False).logits[:, :-1].float()
    found = torch.log_softmax(logits, -1).gather(-1, ids[:, 1:, None]).squeeze(-1)
    return found[:, -LENGTH:]
