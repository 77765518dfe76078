"""PPO from pixels, environment and learner in one compiled program (Schulman et al. 2017).

The constants are CleanRL's for procedurally generated levels, which the benchmark uses: learning
rate 5e-4, 128 environments of 128 steps, 8 minibatches, 3 epochs, discount 0.999, lambda 0.95, clip
0.2, entropy 0.01, Nature-CNN with 512 units. Episodes end by truncation alone; the value of the
state in which a time limit struck is not bootstrapped, as in CleanRL.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from armillary.rl.kage import policies
from armillary.rl.kage.engine import Kage, KageParams
from armillary.rl.kage.policies import PixelNet, Policy


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a policy is trained.

    Attributes:
        total_steps: of all environments together; rounded up to whole updates.
        envs: environments.
        steps: of each in an update.
        minibatches: an update's samples are dealt into so many.
        epochs: passes over an update's samples.
        learning_rate: of Adam (epsilon 1e-5).
        gamma: discount.
        lam: of generalised advantage estimation.
        clip: of probability ratios and of values.
        entropy: weight of the entropy bonus.
        value: weight of the value loss.
        max_norm: of the gradient.
        reward_scale: rewards are multiplied by it before anything else.
        net: the network.
    """

    total_steps: int = 25_000_000
    envs: int = 128
    steps: int = 128
    minibatches: int = 8
    epochs: int = 3
    learning_rate: float = 5e-4
    gamma: float = 0.999
    lam: float = 0.95
    clip: float = 0.2
    entropy: float = 0.01
    value: float = 0.5
    max_norm: float = 0.5
    reward_scale: float = 1.0
    net: PixelNet = dataclasses.field(default_factory=lambda: PixelNet((32, 64, 64), 512))

    def __post_init__(self) -> None:
        for name in ("total_steps", "envs", "steps", "minibatches", "epochs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: at least 1 is needed")
        if (self.envs * self.steps) % self.minibatches:
            raise ValueError(
                f"envs*steps={self.envs * self.steps} is not divided by "
                f"minibatches={self.minibatches}"
            )

    @property
    def updates(self) -> int:
        return -(-self.total_steps // (self.envs * self.steps))


class PPOResult(NamedTuple):
    """What training gave.

    Attributes:
        policy: what was learned.
        success: (updates,) share of the episodes that ended in an update and had succeeded; NaN
            where none ended.
        returns: (updates,) their mean return.
        steps: environment steps in all.
    """

    policy: Policy
    success: np.ndarray
    returns: np.ndarray
    steps: int

    def save(self, folder: str | Path) -> None:
        """Write weights and curves as an Orbax checkpoint into a new folder."""
        import orbax.checkpoint as orbax

        tree = {"weights": self.policy.weights, "success": self.success, "returns": self.returns}
        with orbax.StandardCheckpointer() as checkpointer:
            checkpointer.save(Path(folder).absolute(), tree)


class Batch(NamedTuple):
    """(T, n, …) of an update."""

    obs: jax.Array
    action: jax.Array
    log_prob: jax.Array
    value: jax.Array
    reward: jax.Array
    done: jax.Array
    success: jax.Array
    episode_return: jax.Array


def train(
    env: Kage,
    params: KageParams,
    settings: Settings | None = None,
    seed: int = 0,
    progress: Callable[[Iterable[int]], Iterable[int]] = iter,
) -> PPOResult:
    """Train a policy under one look.

    Args:
        env: the environment, whose observation the policy reads.
        params: the look, from `Kage.params`.
        settings: how.
        seed: of weights, levels, actions and minibatches.
        progress: shows how far it is: wraps the updates, an iterable of known length.
    """
    settings = Settings() if settings is None else settings
    program = _program(env, settings)
    carry = program.start(params, jax.random.PRNGKey(seed))
    curves = []
    for _ in progress(range(settings.updates)):
        carry, curve = program.update(carry, params)
        curves.append(np.asarray(curve))
    success, returns = np.stack(curves).T
    policy = Policy(settings.net, carry[0], env.shape[0])
    return PPOResult(policy, success, returns, settings.updates * settings.envs * settings.steps)


@functools.lru_cache(maxsize=4)
def _program(env: Kage, settings: Settings) -> _Learner:
    return _Learner(env, settings)


class _Learner:
    """Compiled start and update; the look is an input."""

    def __init__(self, env: Kage, settings: Settings) -> None:
        self._env, self._s = env, settings
        self._optimiser = optax.chain(
            optax.clip_by_global_norm(settings.max_norm),
            optax.adam(settings.learning_rate, eps=1e-5),
        )
        self.start, self.update = jax.jit(self._start), jax.jit(self._update)

    def _start(self, params: KageParams, key: jax.Array) -> Any:
        key, k_net, k_env = jax.random.split(key, 3)
        weights = policies.start(self._s.net, self._env.shape[0], k_net)
        states = self._env.reset_batch(jax.random.split(k_env, self._s.envs), params)
        return weights, self._optimiser.init(weights), states, jnp.zeros(self._s.envs), key

    def _update(self, carry: Any, params: KageParams) -> Any:
        weights, optimiser, states, returns, key = carry
        key, k_act, k_learn = jax.random.split(key, 3)
        act = functools.partial(self._act, weights, params)
        (states, returns), batch = jax.lax.scan(
            act, (states, returns), jax.random.split(k_act, self._s.steps)
        )
        last = self._heads(weights, self._env.render_batch(states, params))[1]
        advantages = self._advantages(batch, last)
        weights, optimiser = self._learn(weights, optimiser, batch, advantages, k_learn)
        ended = batch.done.sum()
        mean = functools.partial(jnp.sum, where=batch.done)
        curve = mean(batch.success) / ended, mean(batch.episode_return) / ended
        return (weights, optimiser, states, returns, key), jnp.stack(curve)

    def _heads(self, weights: Any, obs: jax.Array) -> tuple[jax.Array, jax.Array]:
        return self._s.net.apply(weights, obs.astype(jnp.float32) / 255.0)  # pyright: ignore

    def _act(self, weights: Any, params: KageParams, carry: Any, key: jax.Array) -> Any:
        states, returns = carry
        k_action, k_reset = jax.random.split(key)
        obs = self._env.render_batch(states, params)
        logits, value = self._heads(weights, obs)
        action = jax.random.categorical(k_action, logits)
        log_prob = _log_prob(logits, action)
        after, outcome = self._env.step_batch(states, action, params)
        returns = returns + outcome.reward
        done = outcome.truncated
        batch = Batch(
            obs,
            action,
            log_prob,
            value,
            outcome.reward * self._s.reward_scale,
            done,
            after.world.success_once,
            returns,
        )
        after = self._env.continue_batch(after, done, k_reset, params)
        return (after, jnp.where(done, 0.0, returns)), batch

    def _advantages(self, batch: Batch, last: jax.Array) -> jax.Array:
        """Generalised advantage estimation, (T, n)."""

        def back(carry: Any, at: Batch) -> Any:
            advantage, following = carry
            alive = 1.0 - at.done
            delta = at.reward + self._s.gamma * following * alive - at.value
            advantage = delta + self._s.gamma * self._s.lam * alive * advantage
            return (advantage, at.value), advantage

        return jax.lax.scan(back, (jnp.zeros_like(last), last), batch, reverse=True)[1]

    def _learn(
        self, weights: Any, optimiser: Any, batch: Batch, advantages: jax.Array, key: jax.Array
    ) -> Any:
        samples = self._s.envs * self._s.steps
        flat = jax.tree.map(lambda x: x.reshape(samples, *x.shape[2:]), batch)
        advantages = advantages.reshape(samples)

        def minibatch(carry: Any, index: jax.Array) -> Any:
            weights, optimiser = carry
            part = jax.tree.map(lambda x: x[index], flat)
            gradient = jax.grad(self._loss)(weights, part, advantages[index])
            change, optimiser = self._optimiser.update(gradient, optimiser)
            return (optax.apply_updates(weights, change), optimiser), None

        def epoch(carry: Any, key: jax.Array) -> Any:
            order = jax.random.permutation(key, samples).reshape(self._s.minibatches, -1)
            return jax.lax.scan(minibatch, carry, order)

        keys = jax.random.split(key, self._s.epochs)
        return jax.lax.scan(epoch, (weights, optimiser), keys)[0]

    def _loss(self, weights: Any, part: Batch, advantage: jax.Array) -> jax.Array:
        logits, value = self._heads(weights, part.obs)
        ratio = jnp.exp(_log_prob(logits, part.action) - part.log_prob)
        scaled = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        clipped = jnp.clip(ratio, 1 - self._s.clip, 1 + self._s.clip)
        policy = -jnp.minimum(ratio * scaled, clipped * scaled).mean()
        target = advantage + part.value
        near = part.value + jnp.clip(value - part.value, -self._s.clip, self._s.clip)
        worse = jnp.maximum((value - target) ** 2, (near - target) ** 2)
        p = jax.nn.softmax(logits)
        entropy = -(p * jax.nn.log_softmax(logits)).sum(-1).mean()
        return policy + self._s.value * 0.5 * worse.mean() - self._s.entropy * entropy


def _log_prob(logits: jax.Array, action: jax.Array) -> jax.Array:
    scores = jax.nn.log_softmax(logits)
    return jnp.take_along_axis(scores, action[:, None], axis=-1)[:, 0]
