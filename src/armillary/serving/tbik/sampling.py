"""Sampling whose noise belongs to a request, a position and a token, and to nothing else.

Token v at position t of a request with seed s gets Gumbel noise from the counter-based generator
Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) keyed by s
and counted by (t, v); the largest of log-probability / temperature + noise is drawn. What else is
in the batch cannot matter, and two requests without a seed get two seeds.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from armillary.native import portable
from armillary.serving.tbik import ops

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)


def philox(key: int, counter: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """Philox-4x32-10.

    Args:
        key: 64 bits.
        counter: (..., 4) words of 32 bits.

    Returns:
        (..., 4) random words of 32 bits.
    """
    words = [counter[..., i].astype(np.uint64) for i in range(4)]
    keys = [key & 0xFFFFFFFF, key >> 32 & 0xFFFFFFFF]
    for _ in range(10):
        a = words[0] * np.uint64(_MULTIPLIERS[0])
        b = words[2] * np.uint64(_MULTIPLIERS[1])
        words = [
            (b >> np.uint64(32)) ^ words[1] ^ np.uint64(keys[0]), b & _LOW,
            (a >> np.uint64(32)) ^ words[3] ^ np.uint64(keys[1]), a & _LOW,
        ]  # fmt: skip
        keys = [(k + w) & 0xFFFFFFFF for k, w in zip(keys, _WEYL, strict=True)]
    return np.stack(words, -1).astype(np.uint32)


def gumbel(seed: int, position: int, vocabulary: int) -> Tensor:
    """(vocabulary,) Gumbel noise of one position of one request, float32."""
    counter = np.zeros((vocabulary, 4), np.uint64)
    counter[:, 0] = position
    counter[:, 1] = np.arange(vocabulary)
    words = philox(seed, counter)
    uniform = (words[:, 0].astype(np.float64) * 2.0**21 + (words[:, 1] >> 11) + 0.5) * 2.0**-53
    noise = -portable.logarithm(-portable.logarithm(uniform))
    return torch.from_numpy(noise.astype(np.float32))


class RequestSampler:
    """A logits processor for ``generate(do_sample=False)`` that makes its choice a random draw.

    Args:
        seeds: one a request; None: distinct ones are drawn.
        prompt: tokens of the padded prompt: generated tokens are counted from there.
        temperature: above 0.
    """

    def __init__(self, seeds: Sequence[int | None], prompt: int, temperature: float = 1.0) -> None:
        if not temperature > 0:
            raise ValueError(
                f"temperature={temperature}: it must be above 0; greedy needs no sampler"
            )
        self.seeds = [secrets.randbits(64) if seed is None else int(seed) for seed in seeds]
        self.prompt, self.temperature = prompt, temperature

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """(requests, vocabulary) scores with noise."""
        if len(scores) != len(self.seeds):
            raise ValueError(f"{len(scores)} requests and {len(self.seeds)} seeds")
        position = input_ids.shape[1] - self.prompt
        noise = torch.stack([gumbel(s, position, scores.shape[-1]) for s in self.seeds])
        return ops.log_softmax(scores / self.temperature) + noise
