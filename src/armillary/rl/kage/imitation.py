"""A pixel policy in seconds: imitate an expert that sees the ground (`world.expert`).

The expert walks right and jumps when the ground rises within the next 10 pixels. It labels frames
of its own walks; a DAgger round (Ross et al. 2011) then labels what the learner meets.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from armillary.rl.kage import policies, world
from armillary.rl.kage.augmentation import AUGMENTATIONS
from armillary.rl.kage.engine import Kage, KageParams, KageState
from armillary.rl.kage.policies import PixelNet, Policy

STEPS = 500


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a policy is imitated.

    Attributes:
        walks: episodes of 500 frames that the expert labels.
        rounds: DAgger rounds, each with as many episodes as the first collection.
        updates: gradient steps after each collection.
        batch: frames of a gradient step.
        learning_rate: of Adam.
        augmentation: a name of `augmentation.AUGMENTATIONS`.
        net: the network.
    """

    walks: int = 24
    rounds: int = 0
    updates: int = 300
    batch: int = 128
    learning_rate: float = 1e-3
    augmentation: str = "none"
    net: PixelNet = dataclasses.field(default_factory=PixelNet)

    def __post_init__(self) -> None:
        if self.augmentation not in AUGMENTATIONS:
            raise ValueError(
                f"augmentation={self.augmentation!r}: give one of {', '.join(AUGMENTATIONS)}"
            )
        for name in ("walks", "updates", "batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: at least 1 is needed")


Expert = Callable[[KageState], jax.Array]


@dataclasses.dataclass(frozen=True)
class _Trainer:
    """Compiled collection and fitting; looks and weights are inputs."""

    kage: Kage
    settings: Settings

    @functools.cached_property
    def collect(self) -> Any:
        """``(weights, learner, params, key) -> (frames, labels)``; who walks."""
        return jax.jit(self._collect)

    @functools.cached_property
    def fit(self) -> Any:
        """``(weights, state, frames, labels, key) -> (weights, state, loss)``."""
        return jax.jit(self._fit)

    @property
    def optimiser(self) -> optax.GradientTransformation:
        return optax.adam(self.settings.learning_rate)

    def _collect(self, weights: Any, learner: jax.Array, params: KageParams, key: jax.Array) -> Any:
        n = self.settings.walks
        start, act = jax.random.split(key)
        states = self.kage.reset_batch(jax.random.split(start, n), params)

        def step(states: KageState, key: jax.Array) -> Any:
            frames = self.kage.render_batch(states, params)
            label = jax.vmap(world.expert, in_axes=(0, None))(states.world, self.kage.caps)
            own = jax.random.categorical(key, policies.logits(self.settings.net, weights, frames))
            states, _ = self.kage.step_batch(states, jnp.where(learner, own, label), params)
            return states, (frames, label)

        _, (frames, labels) = jax.lax.scan(step, states, jax.random.split(act, STEPS))
        return frames.reshape(-1, *frames.shape[2:]), labels.reshape(-1)

    def _fit(self, weights: Any, state: Any, frames: Any, labels: Any, key: jax.Array) -> Any:
        augment = AUGMENTATIONS[self.settings.augmentation]

        def loss(weights: Any, index: jax.Array, key: jax.Array) -> jax.Array:
            seen = augment(key, frames[index].astype(jnp.float32) / 255.0)
            scores = self.settings.net.apply(weights, seen)[0]  # pyright: ignore
            return optax.softmax_cross_entropy_with_integer_labels(scores, labels[index]).mean()

        def update(carry: Any, key: jax.Array) -> Any:
            weights, state = carry
            k_index, k_augment = jax.random.split(key)
            index = jax.random.randint(k_index, (self.settings.batch,), 0, len(labels))
            value, gradient = jax.value_and_grad(loss)(weights, index, k_augment)
            change, state = self.optimiser.update(gradient, state)
            return (optax.apply_updates(weights, change), state), value

        keys = jax.random.split(key, self.settings.updates)
        (weights, state), losses = jax.lax.scan(update, (weights, state), keys)
        return weights, state, losses[-1]


@functools.lru_cache(maxsize=8)
def _trainer(kage: Kage, settings: Settings) -> _Trainer:
    return _Trainer(kage, settings)


def train(
    kage: Kage, params: KageParams, settings: Settings | None = None, seed: int = 0
) -> Policy:
    """Imitate the expert under one look.

    Args:
        kage: the environment, whose observation the policy reads.
        params: the look, from `Kage.params`.
        settings: how; the same settings compile once for all looks.
        seed: of walks, weights and batches.

    Returns:
        The policy.
    """
    settings = Settings() if settings is None else settings
    trainer = _trainer(kage, settings)
    key = jax.random.PRNGKey(seed)
    key, k_start, k_walk, k_fit = jax.random.split(key, 4)
    weights = policies.start(settings.net, kage.shape[0], k_start)
    state = trainer.optimiser.init(weights)
    frames, labels = trainer.collect(weights, False, params, k_walk)
    weights, state, _ = trainer.fit(weights, state, frames, labels, k_fit)
    for _ in range(settings.rounds):
        key, k_walk, k_fit = jax.random.split(key, 3)
        more, truth = trainer.collect(weights, True, params, k_walk)
        frames, labels = jnp.concatenate([frames, more]), jnp.concatenate([labels, truth])
        weights, state, _ = trainer.fit(weights, state, frames, labels, k_fit)
    return Policy(settings.net, weights, kage.shape[0])
