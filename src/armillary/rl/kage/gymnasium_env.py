"""The environment for Gymnasium: one (`KageGymnasium`), or many in one call (`KageVectorEnv`)."""

from __future__ import annotations

from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from armillary.rl.kage import world
from armillary.rl.kage.config import Source
from armillary.rl.kage.engine import (
    Kage,
    KageParams,
    KageState,
    Mode,
    Outcome,
    check_room,
)
from armillary.rl.kage.env import check_action
from armillary.rl.kage.pairs import any_config
from armillary.rl.kage.params import Config, load_config


def _ready(config: Source | Config | None) -> Config:
    if config is None:
        return any_config()
    return config if isinstance(config, Config) else load_config(config)


def _numpy(array: jax.Array) -> np.ndarray:
    """A device array as NumPy's, without a copy where both share memory; read-only."""
    if array.dtype == jnp.bool_:
        return np.asarray(array)
    return np.from_dlpack(array)  # pyright: ignore[reportArgumentType]


class KageGymnasium(gymnasium.Env[np.ndarray, np.int64]):
    """One environment under Gymnasium's protocol.

    Also ``gym.make("armillary.rl.environments:armillary/Kage-v0")``.

    Args:
        config: a YAML file, a mapping, or what `load_config` returned; default: the plainest look.
        observation_mode: ``rgb``, ``index`` or ``gray``.
        size: 128, 64 or 32.
        render_mode: ``"rgb_array"`` (the frame at full size) or None.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 60}  # noqa: RUF012

    def __init__(
        self,
        config: Source | Config | None = None,
        observation_mode: Mode = "rgb",
        size: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode={render_mode!r}: give None or 'rgb_array'")
        config = _ready(config)
        self.render_mode = render_mode
        self._kage = Kage(config.caps, observation_mode, size)
        self._params = self._kage.params(config)
        self.observation_space = spaces.Box(0, 255, self._kage.shape, np.uint8)
        self.action_space = spaces.Discrete(world.N_ACTIONS)
        self._state: KageState | None = None

        def start(key: jax.Array, params: KageParams) -> tuple[KageState, jax.Array]:
            state = self._kage.reset(key, params)
            return state, self._kage.render(state, params)

        def advance(
            state: KageState, action: jax.Array, params: KageParams
        ) -> tuple[KageState, Outcome, jax.Array]:
            after, outcome = self._kage.step(state, action, params)
            return after, outcome, self._kage.render(after, params)

        self._start, self._advance = jax.jit(start), jax.jit(advance)
        full = Kage(config.caps)
        self._draw = jax.jit(full.render)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """A new episode; the same seed gives the same level and look."""
        super().reset(seed=seed)
        key = jax.random.PRNGKey(int(self.np_random.integers(2**31)))
        self._state, obs = self._start(key, self._params)
        return np.asarray(obs), {"passed_distance": 0.0, "success_once": False}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One step; the episode ends by truncation alone.

        Raises:
            TypeError: the action is no whole number.
            ValueError: it lies outside 0 to 7.
            RuntimeError: there was no reset.
        """
        if self._state is None:
            raise RuntimeError("step before reset: call reset() first")
        state, outcome, obs = self._advance(self._state, check_action(action), self._params)
        self._state = state
        info = {
            "passed_distance": float(outcome.distance),
            "success": bool(outcome.success),
            "success_once": bool(state.world.success_once),
        }
        return np.asarray(obs), float(outcome.reward), False, bool(outcome.truncated), info

    def render(self) -> np.ndarray | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The frame at full size, (128, 128, 3) uint8."""
        if self.render_mode is None or self._state is None:
            return None
        return np.asarray(self._draw(self._state, self._params))


class KageVectorEnv(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """Many environments in one compiled call; arrays are shared with NumPy, not copied.

    An environment whose episode ended begins a new one in the next step, whose action it ignores
    (`gymnasium.vector.AutoresetMode.NEXT_STEP`).

    Args:
        num_envs: how many.
        config: a YAML file, a mapping, or what `load_config` returned; default: the plainest look.
        observation_mode: ``rgb``, ``index`` or ``gray``.
        size: 128, 64 or 32.

    Raises:
        MemoryError: so many environments and their frames do not fit; with the estimate.
    """

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP, "render_modes": []}  # noqa: RUF012

    def __init__(
        self,
        num_envs: int,
        config: Source | Config | None = None,
        observation_mode: Mode = "rgb",
        size: int | None = None,
    ) -> None:
        config = _ready(config)
        self._kage = Kage(config.caps, observation_mode, size)
        check_room(num_envs, self._kage.shape, config.caps)
        self._params = self._kage.params(config)
        self.num_envs = num_envs
        self.single_observation_space = spaces.Box(0, 255, self._kage.shape, np.uint8)
        self.single_action_space = spaces.Discrete(world.N_ACTIONS)
        self.observation_space = spaces.Box(0, 255, (num_envs, *self._kage.shape), np.uint8)
        self.action_space = spaces.MultiDiscrete([world.N_ACTIONS] * num_envs)
        self._states: KageState | None = None
        self._done = jnp.zeros(num_envs, bool)
        self._key = jax.random.PRNGKey(0)
        self._start = jax.jit(self._first)
        self._advance = jax.jit(self._next)

    def _first(self, key: jax.Array, params: KageParams) -> tuple[KageState, jax.Array]:
        states = self._kage.reset_batch(jax.random.split(key, self.num_envs), params)
        return states, self._kage.render_batch(states, params)

    def _next(
        self,
        states: KageState,
        actions: jax.Array,
        done: jax.Array,
        key: jax.Array,
        params: KageParams,
    ) -> Any:
        key, fresh = jax.random.split(key)
        after, outcome = self._kage.step_batch(states, actions, params)
        after = self._kage.continue_batch(after, done, fresh, params)
        outcome = Outcome(
            jnp.where(done, 0.0, outcome.reward),
            outcome.truncated & ~done,
            outcome.success & ~done,
            jnp.where(done, 0.0, outcome.distance),
        )
        return after, outcome, self._kage.render_batch(after, params), key

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """New episodes everywhere."""
        super().reset(seed=seed)
        self._key = jax.random.PRNGKey(int(self.np_random.integers(2**31)))
        self._key, start = jax.random.split(self._key)
        self._states, obs = self._start(start, self._params)
        self._done = jnp.zeros(self.num_envs, bool)
        return _numpy(obs), {}

    def step(
        self, actions: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """One step of all.

        Raises:
            TypeError: actions are no whole numbers.
            ValueError: one lies outside 0 to 7, or there are too few or too many.
            RuntimeError: there was no reset.
        """
        if self._states is None:
            raise RuntimeError("step before reset: call reset() first")
        actions = check_action(actions)
        if actions.shape != (self.num_envs,):
            raise ValueError(f"actions have the shape {actions.shape}: give ({self.num_envs},)")
        states, outcome, obs, self._key = self._advance(
            self._states, actions, self._done, self._key, self._params
        )
        self._states = states
        self._done = outcome.truncated
        info = {
            "passed_distance": _numpy(outcome.distance),
            "success": _numpy(outcome.success),
            "success_once": _numpy(states.world.success_once),
        }
        never = np.zeros(self.num_envs, bool)
        return _numpy(obs), _numpy(outcome.reward), never, _numpy(outcome.truncated), info
