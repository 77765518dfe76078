"""On-policy experience with vectors: generalised advantages of every signal at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from stable_baselines3.common.buffers import RolloutBuffer


class VectorBatch(NamedTuple):
    """A minibatch; returns and old values are (B, K + L)."""

    observations: torch.Tensor
    actions: torch.Tensor
    old_log_prob: torch.Tensor
    advantages: torch.Tensor
    returns: torch.Tensor


class VectorRolloutBuffer(RolloutBuffer):
    """T steps of N environments whose rewards and values are vectors of D = K + L signals.

    Args:
        signals: D.
        *args, **kwargs: of ``RolloutBuffer``.
    """

    def __init__(self, *args: Any, signals: int, **kwargs: Any) -> None:
        self.signals = signals
        super().__init__(*args, **kwargs)

    def reset(self) -> None:
        super().reset()
        shape = (self.buffer_size, self.n_envs, self.signals)
        self.rewards, self.values, self.returns, self.advantages, self.residuals = (
            np.zeros(shape, dtype=np.float32) for _ in range(5)
        )
        self.ages = np.zeros(shape[:2], dtype=np.int64)

    def add(
        self,
        obs: np.ndarray,
        action: np.ndarray,
        reward: np.ndarray,
        episode_start: np.ndarray,
        value: torch.Tensor,
        log_prob: torch.Tensor,
    ) -> None:
        """One step of all environments."""
        at = self.pos
        self.observations[at] = np.asarray(obs).reshape(self.observations.shape[1:])
        self.actions[at] = np.asarray(action).reshape(self.n_envs, self.action_dim)
        self.rewards[at] = reward
        self.episode_starts[at] = episode_start
        self.values[at] = value.cpu().numpy()
        self.log_probs[at] = log_prob.cpu().numpy()
        self.pos += 1
        self.full = self.pos == self.buffer_size

    def compute_returns_and_advantage(self, last_values: torch.Tensor, dones: np.ndarray) -> None:
        """A_t = delta_t + gamma lambda A_{t+1} for each signal; returns are A + V."""
        last = np.zeros((self.n_envs, self.signals), dtype=np.float32)
        following, alive = last_values.cpu().numpy(), 1.0 - np.asarray(dones, dtype=np.float32)
        for t in reversed(range(self.buffer_size)):
            going = alive[:, None]
            delta = self.rewards[t] + self.gamma * following * going - self.values[t]
            self.residuals[t] = delta
            last = delta + self.gamma * self.gae_lambda * going * last
            self.advantages[t] = last
            following, alive = self.values[t], 1.0 - self.episode_starts[t]
        self.returns = self.advantages + self.values

    def correction(self) -> np.ndarray:
        """(D,) what the critic misses of the current policy's return, from fresh residuals.

        J = E V(s_0) + E sum gamma^t delta_t holds for any V; states of age t stand for d_pi with
        weight gamma^t.
        """
        weights = self.gamma ** (self.ages - self.ages.min()).astype(float)
        mean = np.einsum("tn,tnd->d", weights, self.residuals) / weights.sum()
        return mean / (1 - self.gamma)

    def batches(
        self, weights: np.ndarray, size: int, rng: np.random.Generator
    ) -> Iterator[VectorBatch]:
        """All experience once, in random order; advantages are of the scalar w'A_r + u'A_c."""
        flat = self.swap_and_flatten
        parts = (
            flat(self.observations),
            flat(self.actions),
            flat(self.log_probs[..., None])[:, 0],
            flat((self.advantages @ weights.astype(np.float32))[..., None])[:, 0],
            flat(self.returns),
        )
        tensors = [torch.as_tensor(part, device=self.device) for part in parts]
        order = rng.permutation(len(parts[0]))
        for first in range(0, len(order), size):
            index = torch.as_tensor(order[first : first + size])
            yield VectorBatch(*(tensor[index] for tensor in tensors))
