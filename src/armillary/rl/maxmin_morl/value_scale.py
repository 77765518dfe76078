"""Values in units in which a network can be precise: less their mean, over their spread.

With gamma = 0.99 a return is about a hundred times a step's reward, and what one action changes is
a small share of a step: a critic that is wrong by one part in a hundred drowns it. The critic
therefore predicts (V - offset) / scale, where the offset is the return of the running mean signal
and the scale the running spread of the targets. When they move, the last layer is changed so that
every value stays what it was (van Hasselt et al., 2016).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

#: How fast the moments follow.
RATE = 0.1


class ValueScale:
    """Offset and scale of D signals' values.

    Args:
        signals: D.
        gamma: discount.
    """

    def __init__(self, signals: int, gamma: float) -> None:
        self.gamma = gamma
        self.offset = np.zeros(signals)
        self.scale = np.ones(signals)
        self._updates = 0

    def values(self, outputs: torch.Tensor) -> torch.Tensor:
        """Returns, in the signals' units, from the critic's outputs."""
        return outputs * self._tensor(self.scale, outputs) + self._tensor(self.offset, outputs)

    def targets(self, returns: torch.Tensor) -> torch.Tensor:
        """What the critic is to put out for these returns."""
        return (returns - self._tensor(self.offset, returns)) / self._tensor(self.scale, returns)

    def follow(
        self, layer: nn.Linear, mean: np.ndarray, returns: np.ndarray, horizon: float
    ) -> None:
        """Move to the moments of a rollout and keep every value of the critic.

        Args:
            layer: the critic's last layer.
            mean: (D,) mean signals of a step.
            returns: (..., D) its targets.
            horizon: discounted weight of the steps that a state looks forward to.
        """
        self._updates += 1
        rate = max(RATE, 1 / self._updates)
        flat = returns.reshape(-1, returns.shape[-1])
        goal = mean * horizon
        offset = (1 - rate) * self.offset + rate * goal
        spread = np.maximum(flat.std(axis=0), 1e-3 * np.abs(goal) + 1e-6)
        scale = (1 - rate) * self.scale + rate * spread
        with torch.no_grad():
            old, new = self._tensor(self.scale, layer.weight), self._tensor(scale, layer.weight)
            shift = self._tensor(self.offset - offset, layer.weight)
            layer.weight.mul_((old / new)[:, None])
            layer.bias.copy_((layer.bias * old + shift) / new)
        self.offset, self.scale = offset, scale

    @staticmethod
    def _tensor(values: np.ndarray, like: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(values, dtype=like.dtype, device=like.device)
