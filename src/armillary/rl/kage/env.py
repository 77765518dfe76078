"""The environment for gymnax: `KageEnv`. The other ecosystems stand in `gymnasium_env`."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnax.environments import spaces
from gymnax.environments.environment import Environment
from jax.core import Tracer
from jax.experimental import checkify

from armillary.rl.kage import world
from armillary.rl.kage.config import Source
from armillary.rl.kage.engine import Kage, KageParams, KageState, Mode
from armillary.rl.kage.pairs import any_config
from armillary.rl.kage.params import Config, load_config


class KageEnv(Environment[KageState, KageParams]):  # pyright: ignore[reportInvalidTypeArguments]
    """KAGE under gymnax 1.0's protocol.

    ``reset(key, params) -> (obs, state)`` and ``step(key, state, action, params) -> (obs, state,
    reward, terminated, truncated, info)``. An episode ends by truncation alone; then ``step``
    returns the first observation and state of a new one, and ``info["passed_distance"]`` and
    ``info["success_once"]`` still speak of the old. The state is chosen before the one frame of a
    step is drawn: there is no ``final_observation``. Under ``vmap`` a new level is made in every
    step, whether needed or not: for many environments use `engine.Kage.step_batch`, or
    `KageVectorEnv`.

    Args:
        config: a YAML file, a mapping, or what `load_config` returned; default: the plainest look.
        observation_mode: ``rgb``, ``index`` or ``gray``.
        size: 128, 64 or 32.
        checks: check traced actions with `jax.experimental.checkify`; the caller then wraps its
            function in ``checkify.checkify``.
    """

    def __init__(
        self,
        config: Source | Config | None = None,
        observation_mode: Mode = "rgb",
        size: int | None = None,
        checks: bool = False,
    ) -> None:
        super().__init__()
        if config is None:
            config = any_config()
        elif not isinstance(config, Config):
            config = load_config(config)
        self.config = config
        self.kage = Kage(config.caps, observation_mode, size)
        self._checks = checks
        self._params = self.kage.params(config)

    @property
    def default_params(self) -> KageParams:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The inputs of the configuration it was made with."""
        return self._params

    @property
    def name(self) -> str:
        return "Kage"

    @property
    def num_actions(self) -> int:
        return world.N_ACTIONS

    def reset(
        self, key: jax.Array, params: KageParams | None = None
    ) -> tuple[jax.Array, KageState]:
        """A new episode's first observation and state."""
        return self._reset(key, self._params if params is None else params)

    def step(
        self,
        key: jax.Array,
        state: KageState,
        action: Any,
        params: KageParams | None = None,
    ) -> tuple[jax.Array, KageState, jax.Array, jax.Array, jax.Array, dict[Any, Any]]:
        """One step, and a new episode where this one ended.

        Raises:
            TypeError: ``state`` is no `KageState` (an info dict, for example), or the action is no
                whole number.
            ValueError: the action lies outside 0 to 7 (where it is traced: see ``checks``).
        """
        check_state(state)
        action = check_action(action)
        if self._checks and isinstance(action, Tracer):
            checkify.check(
                jnp.all((action >= 0) & (action < world.N_ACTIONS)),
                "action={a} lies outside 0 to 7",
                a=action,
            )
        return self._step(key, state, action, self._params if params is None else params)

    @partial(jax.jit, static_argnames=("self",))
    def _reset(self, key: jax.Array, params: KageParams) -> tuple[jax.Array, KageState]:
        state = self.kage.reset(key, params)
        return self.kage.render(state, params), state

    @partial(jax.jit, static_argnames=("self",))
    def _step(self, key: jax.Array, state: KageState, action: jax.Array, params: KageParams) -> Any:
        after, outcome = self.kage.step(state, action, params)
        kept = jax.lax.cond(outcome.truncated, lambda: self.kage.reset(key, params), lambda: after)
        terminated = jnp.bool_(False)
        info = {
            "passed_distance": outcome.distance,
            "success": outcome.success,
            "success_once": after.world.success_once,
            "terminated": terminated,
            "truncated": outcome.truncated,
        }
        obs = self.render_obs(kept, params)
        return obs, kept, outcome.reward, terminated, outcome.truncated, info

    def render_obs(
        self, state: KageState, params: KageParams | None = None, key: jax.Array | None = None
    ) -> jax.Array:
        """The observation of a state.

        Args:
            state: any state.
            params: of any configuration among the program's features: the same state under another
                look.
            key: (2,) uint32, draws anew what is random in a single frame (noise, jitter).
        """
        if key is not None:
            state = state.replace(key=key)  # pyright: ignore[reportAttributeAccessIssue]
        return self.kage.render(state, self._params if params is None else params)

    def observe(self, key: Any, state: Any, action: Any, params: Any) -> jax.Array:
        """The observation that ``step`` would give; ``key`` and ``action`` do not change it."""
        return self.render_obs(state, params)

    def is_truncated(self, state: KageState, params: KageParams) -> jax.Array:  # pyright: ignore
        return state.world.time >= params.latent.episode_length

    def is_terminated(self, state: KageState, params: KageParams) -> jax.Array:  # pyright: ignore
        return jnp.bool_(False)

    def action_space(self, params: KageParams | None = None) -> spaces.Discrete:
        return spaces.Discrete(world.N_ACTIONS)

    def observation_space(self, params: KageParams | None = None) -> spaces.Box:
        return spaces.Box(0, 255, self.kage.shape, jnp.uint8)


def check_state(state: Any) -> None:
    """Refuse what is no state.

    Raises:
        TypeError: with the likely mistake.
    """
    if isinstance(state, KageState):
        return
    if isinstance(state, dict):
        raise TypeError(
            f"state is a dict with {sorted(map(str, state))}: it looks like the info of a step; "
            "give the state, the second value that reset and step return"
        )
    raise TypeError(f"state is a {type(state).__name__}: give the KageState of reset or step")


def check_action(action: Any) -> jax.Array:
    """An action as int32, refused where its value is known and wrong.

    Raises:
        TypeError: it is no whole number.
        ValueError: it lies outside 0 to 7.
    """
    kind = action.dtype if hasattr(action, "dtype") else np.asarray(action).dtype
    if not np.issubdtype(kind, np.integer):
        raise TypeError(
            f"action={action!r} is of type {kind}: give whole numbers from 0 to 7 "
            "(bits: 1 left, 2 right, 4 jump)"
        )
    if not isinstance(action, Tracer):
        values = np.asarray(action)
        if values.size and (values.min() < 0 or values.max() >= world.N_ACTIONS):
            raise ValueError(
                f"action={action!r} lies outside 0 to 7 (bits: 1 left, 2 right, 4 jump)"
            )
    return jnp.asarray(action).astype(jnp.int32)
