"""Constrained max-min PPO: one critic with an output a signal, a dual step on fresh returns.

The advantage is w'A_r + u'A_c. After every rollout (w, u) move on the returns of the current
policy: the vector critic at recent initial states, corrected by its residuals on the fresh rollout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.utils import obs_as_tensor
from torch.nn import functional

from armillary.rl.maxmin_morl.constraints import Constraint
from armillary.rl.maxmin_morl.learner import MaxMinLearner, MaxMinSettings
from armillary.rl.maxmin_morl.networks import VectorCriticPolicy
from armillary.rl.maxmin_morl.returns import Episodes
from armillary.rl.maxmin_morl.rollouts import VectorRolloutBuffer
from armillary.rl.maxmin_morl.smoothing import SmoothedGradient
from armillary.rl.maxmin_morl.value_scale import ValueScale

_OWN = set(MaxMinSettings.__dataclass_fields__)
#: Share of the steps after which noise has fallen: the dual settles at the last one, and so the
#: mixture of late policies is of one noise.
SETTLED = 0.8


class ConstrainedMaxMinPPO(MaxMinLearner, PPO):
    """Lift the worst objective while limits hold; on-policy.

    Args:
        env: an id of mo-gymnasium or Gymnasium, a factory, an environment with `reward_space`, a
            Gymnasium vector environment, or a VecEnv with vector rewards.
        constraints: limits, as `Constraint` or text such as ``"info:energy>=-180@discounted"``.
        n_envs: copies of the environment, where it can be copied.
        processes: one process a copy.
        n_steps, batch_size, n_epochs, ...: of Stable-Baselines3's PPO.
        noise: standard deviation of continuous actions at first and from four fifths of the steps
            on, between which it falls geometrically; None lets it be learned. Where a limit is on
            the actions themselves, noise that never falls uses it up.
        **kwargs: of `MaxMinSettings`, and of Stable-Baselines3's PPO.

    Raises:
        ValueError: rewards are scalar, a limit is not usable, or there is a single state.
    """

    def __init__(
        self,
        env: Any,
        constraints: Sequence[Constraint | str] = (),
        *,
        n_envs: int = 8,
        processes: bool = False,
        n_steps: int = 64,
        batch_size: int = 256,
        n_epochs: int = 10,
        learning_rate: Any = 3e-4,
        gamma: float = 0.99,
        gae_lambda: float = 0.95,
        ent_coef: float = 0.0,
        noise: tuple[float, float] | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        device: str = "cpu",
        **kwargs: Any,
    ) -> None:
        self.noise = _checked_noise(noise)
        settings = MaxMinSettings(**{k: kwargs.pop(k) for k in list(kwargs) if k in _OWN})
        wrapped = self._prepare(env, constraints, settings, n_envs, processes)
        self._own_policy_kwargs = dict(policy_kwargs or {})
        super().__init__(
            VectorCriticPolicy,
            wrapped,
            learning_rate=learning_rate,
            n_steps=n_steps,
            batch_size=min(batch_size, n_steps * wrapped.num_envs),
            n_epochs=n_epochs,
            gamma=gamma,
            gae_lambda=gae_lambda,
            ent_coef=ent_coef,
            rollout_buffer_class=VectorRolloutBuffer,
            rollout_buffer_kwargs={"signals": self.signals.size},
            policy_kwargs={
                "signals": self.signals.size, "log_std_init": -0.5, **self._own_policy_kwargs
            },
            device=device,
            **kwargs,
        )  # fmt: skip
        if self.noise is not None:
            if not isinstance(self.action_space, spaces.Box):
                raise ValueError(f"noise={noise} is of continuous actions: {self.action_space}")
            self.policy.log_std.requires_grad_(False)  # pyright: ignore
        self._rng = np.random.default_rng(self.seed)
        self.value_scale = ValueScale(self.signals.size, gamma)
        self._terminated = False
        self.episodes = Episodes(self.n_envs, self.signals.size, gamma, keep=2 * self.n_envs)
        self._smoothed = (
            SmoothedGradient(self.policy, self.signals.size, self._K, seed=self.seed or 0)
            if settings.gradient == "smoothing"
            else None
        )

    @staticmethod
    def _is_actor(key: str) -> bool:
        actor = ("features_extractor.", "mlp_extractor.policy_net.", "action_net.", "log_std")
        return key.startswith(actor)

    def _values(self, observations: Any) -> torch.Tensor:
        """(N, K + L) discounted returns that the critic predicts, in the signals' units."""
        with torch.no_grad():
            tensor = obs_as_tensor(np.asarray(observations), self.device)
            return self.value_scale.values(self.policy.predict_values(tensor))

    @property
    def _unit(self) -> torch.Tensor:
        """(K + L,) sizes of returns."""
        return torch.as_tensor(self._size, dtype=torch.float32, device=self.device)

    def collect_rollouts(
        self, env: Any, callback: Any, rollout_buffer: Any, n_rollout_steps: int
    ) -> bool:
        """Play ``n_rollout_steps`` in all environments; False where a callback or a limit stops."""
        if self._last_obs is None:
            self._last_obs = env.reset()
        if self.num_timesteps == 0:
            self.episodes.start(np.ones(self.n_envs, dtype=bool), self._last_obs)  # pyright: ignore
            if _staggered(env):
                self.episodes.partial(np.arange(self.n_envs) > 0)
        self.policy.set_training_mode(False)
        self._observe(rollout_buffer)
        self._anneal_noise()
        rollout_buffer.reset()
        callback.on_rollout_start()
        totals = np.zeros(self.signals.size)
        for _ in range(n_rollout_steps):
            with torch.no_grad():
                seen = obs_as_tensor(self._last_obs, self.device)  # pyright: ignore
                actions, values, log_probs = self.policy(seen)
            chosen = actions.cpu().numpy()
            if isinstance(self.action_space, spaces.Box):
                chosen = np.clip(chosen, self.action_space.low, self.action_space.high)
            following, signals, dones, infos = env.step(chosen)
            self.num_timesteps += env.num_envs
            callback.update_locals(locals())
            if not callback.on_step():
                return False
            self._update_info_buffer(infos, dones)
            self._watch_sizes(signals)
            rollout_buffer.ages[rollout_buffer.pos] = self.episodes.ages
            self.episodes.add(signals, dones)
            totals += signals.mean(axis=0)
            rewards = signals + self._after_truncation(infos, dones)
            rollout_buffer.add(
                self._last_obs, actions.cpu().numpy(), rewards, self._last_episode_starts,
                self.value_scale.values(values), log_probs,
            )  # fmt: skip
            if dones.any():
                self.episodes.start(dones, following)
            self._last_obs, self._last_episode_starts = following, dones
        rollout_buffer.compute_returns_and_advantage(self._values(self._last_obs), dones)
        self._mean = totals / n_rollout_steps
        callback.update_locals(locals())
        callback.on_rollout_end()
        return self._move_dual(rollout_buffer)

    def _observe(self, rollout_buffer: VectorRolloutBuffer) -> None:
        """Bring the inputs' moments up to date between updates.

        Within one rollout and its update they stand still: probabilities would shift otherwise.
        """
        if rollout_buffer.full:
            seen = rollout_buffer.swap_and_flatten(rollout_buffer.observations)
            self.policy.observe(obs_as_tensor(seen, self.device))

    def _anneal_noise(self) -> None:
        """Bring the spread of actions to where its schedule has it."""
        if self.noise is None:
            return
        first, last = self.noise
        done = min(self.num_timesteps / max(self._total_timesteps * SETTLED, 1), 1.0)
        with torch.no_grad():
            self.policy.log_std.fill_((1 - done) * np.log(first) + done * np.log(last))  # pyright: ignore

    def _after_truncation(self, infos: Sequence[dict[str, Any]], dones: np.ndarray) -> np.ndarray:
        """gamma V(s') where an episode was cut off: truncation is not termination."""
        extra = np.zeros((self.n_envs, self.signals.size))
        ended = np.flatnonzero(dones)
        self._terminated |= any(not infos[i].get("TimeLimit.truncated") for i in ended)  # pyright: ignore
        cut = [i for i in ended if infos[i].get("TimeLimit.truncated")]  # pyright: ignore
        if cut:
            last = np.stack([infos[i]["terminal_observation"] for i in cut])  # pyright: ignore
            extra[cut] = self.gamma * self._values(last).cpu().numpy()
        return extra

    def _move_dual(self, rollout_buffer: VectorRolloutBuffer) -> bool:
        if self.num_timesteps < self.settings.warmup * self._total_timesteps:
            return True
        if self._smoothed is not None:
            J = self._smoothed(self.policy, rollout_buffer, self.dual, self._unit, self._starts())
        else:
            J = self.estimate()
        self._dual_step(J)
        return not self._out_of_reach()

    def _starts(self) -> torch.Tensor:
        return obs_as_tensor(np.stack(list(self.episodes.starts)), self.device)  # pyright: ignore

    def estimate(self) -> np.ndarray:
        """(K + L,) discounted returns of the current policy from where episodes start."""
        predicted = self._values(np.stack(list(self.episodes.starts))).mean(dim=0).cpu().numpy()
        return predicted + self.rollout_buffer.correction()  # pyright: ignore

    def train(self) -> None:
        """Clipped surrogate on the scalar advantage; Huber loss of every signal's value."""
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        clip = self.clip_range(self._current_progress_remaining)  # pyright: ignore
        weights = self.dual.weights()
        for _ in range(self.n_epochs):
            for batch in self.rollout_buffer.batches(weights, self.batch_size, self._rng):  # pyright: ignore
                actions = batch.actions
                if isinstance(self.action_space, spaces.Discrete):
                    actions = actions.long().flatten()
                values, log_prob, entropy = self.policy.evaluate_actions(
                    batch.observations, actions
                )
                advantage = batch.advantages
                if len(advantage) > 1:
                    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                ratio = torch.exp(log_prob - batch.old_log_prob)
                surrogate = torch.min(
                    advantage * ratio, advantage * ratio.clamp(1 - clip, 1 + clip)
                ).mean()
                fit = functional.smooth_l1_loss(values, self.value_scale.targets(batch.returns))
                bonus = (-log_prob if entropy is None else entropy).mean()
                loss = -surrogate - self.ent_coef * bonus + self.vf_coef * values.shape[1] * fit
                self.policy.optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
                self.policy.optimizer.step()
        self._n_updates += self.n_epochs
        buffer: Any = self.rollout_buffer
        horizon = 1 / (1 - self.gamma)
        if self._terminated:
            horizon *= 1 - self.gamma ** float(np.mean(self.episodes.lengths or [1]))
        self.value_scale.follow(self.policy.value_net, self._mean, buffer.returns, horizon)


def _checked_noise(noise: tuple[float, float] | None) -> tuple[float, float] | None:
    if noise is None:
        return None
    if len(noise) != 2 or not all(np.isfinite(n) and n > 0 for n in noise):
        raise ValueError(f"noise={noise}: give two positive numbers, the first and the last one")
    return float(noise[0]), float(noise[1])


def _staggered(env: Any) -> bool:
    inner = getattr(env.venv, "env", None)
    return bool(getattr(inner, "stagger", False))
