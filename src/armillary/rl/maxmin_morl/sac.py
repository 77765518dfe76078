"""Constrained max-min SAC: soft critics of the scalar reward, a vector critic for the dual.

Critics learn w'r + u'c plus entropy from a replay buffer of vectors, so that old experience serves
new weights. A vector critic G(s) in R^{K+L} values the current policy: from the newest experience
with one-step ratios clipped at 1 (V-trace), and its bias is taken off with whole episodes of the
current behaviour. Continuous actions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from stable_baselines3 import SAC
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.utils import polyak_update
from torch import nn
from torch.nn import functional

from armillary.rl.maxmin_morl.constraints import Constraint
from armillary.rl.maxmin_morl.learner import MaxMinLearner, MaxMinSettings
from armillary.rl.maxmin_morl.returns import Episodes

_OWN = set(MaxMinSettings.__dataclass_fields__)
#: Environment steps between two dual steps.
DUAL_EVERY = 100
#: How far back the vector critic looks, in transitions of each environment.
RECENT = 2000


class VectorSamples(NamedTuple):
    """A batch of transitions; rewards are (B, K + L)."""

    observations: torch.Tensor
    actions: torch.Tensor
    next_observations: torch.Tensor
    dones: torch.Tensor
    rewards: torch.Tensor
    log_probs: torch.Tensor


class VectorReplayBuffer(ReplayBuffer):
    """Transitions with vectors of signals and the log-probability under which the action was drawn.

    Args:
        signals: K + L.
        seed: of the draws.
        *args, **kwargs: of ``ReplayBuffer``.
    """

    def __init__(self, *args: Any, signals: int, seed: int = 0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._rng = np.random.default_rng(seed)
        self.rewards = np.zeros((self.buffer_size, self.n_envs, signals), dtype=np.float32)
        self.log_probs = np.zeros((self.buffer_size, self.n_envs), dtype=np.float32)
        self.behaviour = np.zeros(self.n_envs, dtype=np.float32)

    def add(self, *args: Any, **kwargs: Any) -> None:
        """As ``ReplayBuffer.add``; takes the log-probabilities from ``behaviour``."""
        self.log_probs[self.pos] = self.behaviour
        super().add(*args, **kwargs)

    def draw(self, size: int, recent: int | None = None) -> VectorSamples:
        """Transitions drawn uniformly, from the newest ``recent`` of each environment if given."""
        filled = self.buffer_size if self.full else self.pos
        span = filled if recent is None else min(recent, filled)
        rows = (self.pos - 1 - self._rng.integers(span, size=size)) % self.buffer_size
        envs = self._rng.integers(self.n_envs, size=size)
        following = (
            self.observations[(rows + 1) % self.buffer_size, envs]
            if self.optimize_memory_usage
            else self.next_observations[rows, envs]
        )
        ended = self.dones[rows, envs] * (1 - self.timeouts[rows, envs])
        parts = (
            self.observations[rows, envs],
            self.actions[rows, envs],
            following,
            ended[:, None],
            self.rewards[rows, envs],
            self.log_probs[rows, envs],
        )
        return VectorSamples(*(self.to_torch(part).float() for part in parts))


class ConstrainedMaxMinSAC(MaxMinLearner, SAC):
    """Lift the worst objective while limits hold; off-policy, continuous actions.

    Args:
        env: an id of mo-gymnasium or Gymnasium, a factory, an environment with `reward_space`, a
            Gymnasium vector environment, or a VecEnv with vector rewards.
        constraints: limits, as `Constraint` or text such as ``"info:energy>=-180@discounted"``.
        n_envs: copies of the environment, where it can be copied.
        processes: one process a copy.
        vector_rate: learning rate of the vector critic.
        buffer_size, batch_size, ...: of Stable-Baselines3's SAC.
        **kwargs: of `MaxMinSettings`, and of Stable-Baselines3's SAC.

    Raises:
        ValueError: actions are discrete, rewards are scalar, or a limit is not usable.
    """

    def __init__(
        self,
        env: Any,
        constraints: Sequence[Constraint | str] = (),
        *,
        n_envs: int = 1,
        processes: bool = False,
        learning_rate: Any = 3e-4,
        vector_rate: float = 3e-4,
        buffer_size: int = 100_000,
        batch_size: int = 256,
        gamma: float = 0.99,
        policy_kwargs: dict[str, Any] | None = None,
        device: str = "cpu",
        **kwargs: Any,
    ) -> None:
        settings = MaxMinSettings(**{k: kwargs.pop(k) for k in list(kwargs) if k in _OWN})
        if settings.gradient != "critic":
            raise ValueError("gradient='smoothing' is an option of ConstrainedMaxMinPPO alone")
        wrapped = self._prepare(env, constraints, settings, n_envs, processes)
        if not isinstance(wrapped.action_space, gymnasium.spaces.Box):
            raise ValueError(
                f"SAC needs continuous actions, the environment has {wrapped.action_space}: take "
                "ConstrainedMaxMinPPO"
            )
        self._own_policy_kwargs = dict(policy_kwargs or {})
        super().__init__(
            "MlpPolicy",
            wrapped,
            learning_rate=learning_rate,
            buffer_size=buffer_size,
            batch_size=batch_size,
            gamma=gamma,
            replay_buffer_class=VectorReplayBuffer,
            replay_buffer_kwargs={"signals": self.signals.size, "seed": kwargs.get("seed") or 0},
            policy_kwargs=policy_kwargs,
            device=device,
            **kwargs,
        )
        self.episodes = Episodes(self.n_envs, self.signals.size, gamma, keep=10)
        observations = gymnasium.spaces.flatdim(self.observation_space)
        self.vector_critic = _network(observations, self.signals.size).to(self.device)
        self.vector_target = _network(observations, self.signals.size).to(self.device)
        self.vector_target.load_state_dict(self.vector_critic.state_dict())
        self._vector_optimizer = torch.optim.Adam(self.vector_critic.parameters(), lr=vector_rate)
        self._since_dual = 0

    @staticmethod
    def _is_actor(key: str) -> bool:
        return key.startswith("actor.")

    def _sample_action(
        self, learning_starts: int, action_noise: Any = None, n_envs: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        actions, stored = super()._sample_action(learning_starts, action_noise, n_envs)
        with torch.no_grad():
            seen = torch.as_tensor(np.asarray(self._last_obs), device=self.device).float()
            behaviour = self._log_prob(seen, torch.as_tensor(stored, device=self.device).float())
        uniform = -np.log(2.0) * stored.shape[1]
        random = self.num_timesteps < learning_starts
        buffer: Any = self.replay_buffer
        buffer.behaviour[:] = uniform if random else behaviour.cpu().numpy()
        return actions, stored

    def _log_prob(self, observations: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """(B,) log-probability density of squashed actions under the current actor."""
        mean, log_std, _ = self.actor.get_action_dist_params(observations)
        distribution = self.actor.action_dist.proba_distribution(mean, log_std)  # pyright: ignore
        return distribution.log_prob(actions.clamp(-1 + 1e-6, 1 - 1e-6))

    def _store_transition(
        self, replay_buffer: Any, buffer_action: Any, new_obs: Any, reward: Any, dones: Any,
        infos: Any,
    ) -> None:  # fmt: skip
        if self.num_timesteps <= self.n_envs:
            self.episodes.start(np.ones(self.n_envs, dtype=bool), np.asarray(self._last_obs))
        self._watch_sizes(reward)
        self.episodes.add(reward, dones)
        if np.any(dones):
            self.episodes.start(np.asarray(dones), np.asarray(new_obs))
        self._since_dual += self.n_envs
        super()._store_transition(replay_buffer, buffer_action, new_obs, reward, dones, infos)

    def train(self, gradient_steps: int, batch_size: int = 64) -> None:
        """Steps of critics, actor, temperature, vector critic; then, in its time, of the dual."""
        self.policy.set_training_mode(True)
        optimizers = [self.actor.optimizer, self.critic.optimizer]
        if self.ent_coef_optimizer is not None:
            optimizers.append(self.ent_coef_optimizer)
        self._update_learning_rate(optimizers)
        scale = float(self._size[: self._K].mean()) * (1 - self.gamma)
        weights = torch.as_tensor(self.dual.weights() / scale, dtype=torch.float32).to(self.device)
        buffer: Any = self.replay_buffer
        for _ in range(gradient_steps):
            batch = buffer.draw(batch_size)
            self._soft_step(batch, batch.rewards @ weights)
            self._vector_step(buffer.draw(batch_size, RECENT))
        self._n_updates += gradient_steps
        warm = self.num_timesteps >= self.settings.warmup * self._total_timesteps
        if warm and self._since_dual >= DUAL_EVERY:
            self._since_dual = 0
            self._dual_step(self.estimate())

    def _soft_step(self, batch: VectorSamples, reward: torch.Tensor) -> None:
        actions, log_prob = self.actor.action_log_prob(batch.observations)
        log_prob = log_prob.reshape(-1, 1)
        alpha = self._temperature(log_prob)
        with torch.no_grad():
            following, next_log_prob = self.actor.action_log_prob(batch.next_observations)
            q = torch.cat(self.critic_target(batch.next_observations, following), dim=1)
            soft = q.min(dim=1, keepdim=True).values - alpha * next_log_prob.reshape(-1, 1)
            target = reward[:, None] + self.gamma * (1 - batch.dones) * soft
        loss = sum(
            functional.smooth_l1_loss(q, target)
            for q in self.critic(batch.observations, batch.actions)
        )
        _descend(self.critic.optimizer, loss)
        q = torch.cat(self.critic(batch.observations, actions), dim=1).min(dim=1, keepdim=True)
        _descend(self.actor.optimizer, (alpha * log_prob - q.values).mean())
        polyak_update(self.critic.parameters(), self.critic_target.parameters(), self.tau)

    def _temperature(self, log_prob: torch.Tensor) -> torch.Tensor:
        if self.ent_coef_optimizer is None or self.log_ent_coef is None:
            return self.ent_coef_tensor
        alpha = torch.exp(self.log_ent_coef.detach())
        excess = (log_prob + self.target_entropy).detach()  # pyright: ignore
        _descend(self.ent_coef_optimizer, -(self.log_ent_coef * excess).mean())
        return alpha

    def _vector_step(self, batch: VectorSamples) -> None:
        """V-trace with one-step ratios clipped at 1: G moves by rho (r + gamma G' - G)."""
        unit = torch.as_tensor(self._size, dtype=torch.float32, device=self.device)
        with torch.no_grad():
            now = self._log_prob(batch.observations, batch.actions)
            ratio = torch.exp((now - batch.log_probs).clamp(max=0.0))[:, None]
            onward = self.vector_target(batch.next_observations.flatten(1))
            target = batch.rewards / unit + self.gamma * (1 - batch.dones) * onward
        found = self.vector_critic(batch.observations.flatten(1))
        error = functional.smooth_l1_loss(found, target, reduction="none")
        _descend(self._vector_optimizer, (ratio * error).mean())
        polyak_update(self.vector_critic.parameters(), self.vector_target.parameters(), 0.005)

    def estimate(self) -> np.ndarray:
        """(K + L,) discounted returns from where episodes start, half by G, half as just played.

        Clipped ratios value a policy between the behaviour and the current one. Episodes just
        played are of policies a little older than the current one, but without that bias.
        """
        starts = torch.as_tensor(np.stack(list(self.episodes.starts)), device=self.device).float()
        with torch.no_grad():
            G = self.vector_critic(starts.flatten(1)).mean(dim=0).cpu().numpy() * self._size
        if not self.episodes.discounted:
            return G
        return (G + np.mean(self.episodes.discounted, axis=0)) / 2

    def collect_rollouts(self, *args: Any, **kwargs: Any) -> Any:
        """As SAC's; stops where the limits are out of reach."""
        if self._last_obs is None:
            self._last_obs = self.env.reset()
        found = super().collect_rollouts(*args, **kwargs)
        if self._out_of_reach():
            return found._replace(continue_training=False)
        return found


def _network(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(inputs, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, outputs)
    )


def _descend(optimizer: torch.optim.Optimizer, loss: Any) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
