"""Small problems whose answers are known."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest


def two_contexts(arms: np.ndarray, costs: np.ndarray, gamma: float = 0.5):
    """Two contexts that are never left, with the same arms: a bandit with S = 2.

    Args:
        arms: (A, K) rewards of the arms.
        costs: (A, L) constraint rewards.

    Returns:
        P, r, c and mu; every discounted return is that of the mixture of arms over (1 - gamma).
    """
    A = len(arms)
    P = np.zeros((2, A, 2))
    P[0, :, 0] = P[1, :, 1] = 1.0
    r = np.stack([arms, arms]).astype(float)
    c = np.stack([costs, costs]).astype(float)
    return P, r, c, np.array([0.5, 0.5])


class Scales(gymnasium.Env):
    """A vector environment of one step's memory: three objectives in one action, energy in info.

    Objective k gains from component k of the action and loses by the others' squares; episodes are
    cut off after 20 steps.
    """

    def __init__(
        self,
        nan_at: int | None = None,
        discrete: bool = False,
        states: int = 0,
        unit: float = 1.0,
    ) -> None:
        self.unit = np.array([1.0, 1.0, unit])  # of the third objective
        self.observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        if states:
            self.observation_space = gymnasium.spaces.Discrete(states)
        box = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(3) if discrete else box
        self.reward_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float64)
        self.nan_at, self.discrete = nan_at, discrete

    def _see(self):
        if isinstance(self.observation_space, gymnasium.spaces.Discrete):
            return 0
        return np.zeros(2, dtype=np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._see(), {}

    def step(self, action):
        self.t += 1
        a = np.eye(3)[int(action)] if self.discrete else np.asarray(action, dtype=float)
        reward = self.unit * (1.0 + a * np.array([1.0, 0.5, 0.25]))
        if self.nan_at is not None and self.t == self.nan_at:
            reward[1] = np.nan
        return self._see(), reward, False, self.t >= 20, {"energy": -float(np.abs(a).sum())}


@pytest.fixture
def scales():
    return Scales
