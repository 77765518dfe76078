"""The dual gradient by Gaussian smoothing (Park et al., ICML 2024): a rewrite, for comparison.

Copies of the scalar critic are trained for a step on rewards whose weights are perturbed by noise;
a plane through their values at initial states gives the gradient. It costs as many critic updates
as there are copies, and carries the bias of copies that have had one step to follow their weights.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

if TYPE_CHECKING:
    from armillary.rl.maxmin_morl.dual_ascent import DualVariables
    from armillary.rl.maxmin_morl.rollouts import VectorRolloutBuffer

COPIES = 10
SPREAD = 0.01
#: The published learning rate of the copies.
COPY_RATE = 0.073


class SmoothedGradient:
    """Estimates of (J_r, J_c) from perturbed scalar critics.

    Args:
        policy: whose features and size the critics take.
        signals: K + L.
        objectives: K; only their weights are perturbed where prices are 0.
        seed: of the noise.
    """

    def __init__(self, policy: Any, signals: int, objectives: int, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self.signals, self.objectives = signals, objectives
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            width = policy.features_extractor.features_dim
            self.critic = nn.Sequential(
                nn.Linear(width, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)
            ).to(policy.device)
        self._optimizer = torch.optim.Adam(self.critic.parameters(), lr=3e-4)

    def __call__(
        self,
        policy: Any,
        rollout: VectorRolloutBuffer,
        dual: DualVariables,
        unit: torch.Tensor,
        starts: torch.Tensor,
    ) -> np.ndarray:
        """(K + L,) slopes of the critic's value at initial states in the weights."""
        flat = rollout.swap_and_flatten
        with torch.no_grad():
            features = policy.features_extractor(torch.as_tensor(flat(rollout.observations)))
            at_start = policy.features_extractor(starts)
        returns = torch.as_tensor(flat(rollout.returns))
        size = unit[: self.objectives].mean()
        weights = torch.as_tensor(dual.weights(), dtype=torch.float32)
        for _ in range(10):
            self._fit(self.critic, self._optimizer, features, returns @ weights / size)
        noise = SPREAD * self._rng.standard_normal((COPIES, self.signals))
        noise[:, self.objectives :] *= dual.worth
        values = []
        for delta in noise:
            twin = copy.deepcopy(self.critic)
            target = returns @ (weights + torch.as_tensor(delta, dtype=torch.float32)) / size
            self._fit(twin, torch.optim.SGD(twin.parameters(), COPY_RATE), features, target)
            with torch.no_grad():
                values.append(float(twin(at_start).mean()) * float(size))
        plane = np.column_stack([noise, np.ones(COPIES)])
        return np.linalg.lstsq(plane, np.array(values), rcond=None)[0][:-1]

    @staticmethod
    def _fit(
        critic: nn.Module, optimizer: Any, features: torch.Tensor, target: torch.Tensor
    ) -> None:
        loss = functional.smooth_l1_loss(critic(features)[:, 0], target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
