"""Networks of the learners: observations of unit scale, critics with one output a signal."""

from __future__ import annotations

from typing import Any

import gymnasium
import torch
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.preprocessing import get_flattened_obs_dim
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, FlattenExtractor
from torch import nn


class UnitScale(BaseFeaturesExtractor):
    """Flattened observations, less their running mean, over their running standard deviation.

    The moments are buffers, so that they travel with the weights; `observe` updates them.
    """

    def __init__(self, observation_space: gymnasium.Space) -> None:
        size = get_flattened_obs_dim(observation_space)
        super().__init__(observation_space, size)
        self.mean: torch.Tensor
        self.var: torch.Tensor
        self.count: torch.Tensor
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("var", torch.ones(size))
        self.register_buffer("count", torch.tensor(1e-4))

    def observe(self, observations: torch.Tensor) -> None:
        """Add a batch to the moments (Chan et al., 1979)."""
        batch = observations.flatten(1).float()
        n, total = len(batch), self.count + len(batch)
        shift = batch.mean(0) - self.mean
        spread = self.var * self.count + batch.var(0, unbiased=False) * n
        self.var.copy_((spread + shift**2 * self.count * n / total) / total)
        self.mean += shift * n / total
        self.count.copy_(total)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        x = (observations.flatten(1).float() - self.mean) / torch.sqrt(self.var + 1e-8)
        return x.clamp(-10, 10)


def _unit_box(space: gymnasium.Space) -> bool:
    """Whether actions are numbers between -1 and 1."""
    return isinstance(space, gymnasium.spaces.Box) and bool(
        (space.low == -1).all() and (space.high == 1).all()
    )


class VectorCriticPolicy(ActorCriticPolicy):
    """An actor, and a critic that predicts the discounted return of every signal.

    Means of actions between -1 and 1 pass through tanh: beyond bounds, where actions are clipped,
    nothing would pull a mean back.

    Args:
        signals: K + L, the critic's outputs.
        *args, **kwargs: of ``ActorCriticPolicy``.
    """

    def __init__(self, *args: Any, signals: int, **kwargs: Any) -> None:
        self.signals = signals
        space = args[0] if args else kwargs["observation_space"]
        box = isinstance(space, gymnasium.spaces.Box)
        kwargs.setdefault("features_extractor_class", UnitScale if box else FlattenExtractor)
        super().__init__(*args, **kwargs)

    def _build(self, lr_schedule: Any) -> None:
        super()._build(lr_schedule)
        self.value_net = nn.Linear(self.mlp_extractor.latent_dim_vf, self.signals)
        nn.init.orthogonal_(self.value_net.weight, 1.0)
        nn.init.zeros_(self.value_net.bias)
        if _unit_box(self.action_space):
            self.action_net = nn.Sequential(self.action_net, nn.Tanh())
        self.optimizer = self.optimizer_class(
            self.parameters(),
            lr=lr_schedule(1),  # pyright: ignore
            **self.optimizer_kwargs,  # pyright: ignore
        )

    def observe(self, observations: torch.Tensor) -> None:
        """Let running moments see new observations, if the features have any."""
        if isinstance(self.features_extractor, UnitScale):
            self.features_extractor.observe(observations)
