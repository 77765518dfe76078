"""Multi-objective environments as Stable-Baselines3 wants them, with a vector for a reward."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from stable_baselines3.common.vec_env.base_vec_env import VecEnv, VecEnvWrapper

if TYPE_CHECKING:
    from armillary.rl.maxmin_morl.constraints import Signals


class LocalVecEnv(VecEnv):
    """Environments stepped one after the other in this process."""

    def __init__(self, makers: Sequence[Callable[[], gymnasium.Env]]) -> None:
        self.envs = [make() for make in makers]
        first = self.envs[0]
        super().__init__(len(self.envs), first.observation_space, first.action_space)

    def reset(self) -> np.ndarray:
        seen = []
        for env, seed in zip(self.envs, self._seeds, strict=True):
            obs, _ = env.reset(seed=seed)
            seen.append(obs)
        self._reset_seeds()
        return np.stack(seen)

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = actions

    def step_wait(self) -> tuple[Any, Any, Any, Any]:
        results = [self._one(env, a) for env, a in zip(self.envs, self._actions, strict=True)]
        seen, rewards, dones, infos = zip(*results, strict=True)
        return np.stack(seen), np.stack(rewards), np.array(dones), list(infos)

    @staticmethod
    def _one(env: gymnasium.Env, action: Any) -> tuple[Any, Any, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = env.step(action)
        done = terminated or truncated
        if done:
            info = {
                **info,
                "terminal_observation": obs,
                "TimeLimit.truncated": truncated and not terminated,
            }
            obs, _ = env.reset()
        return obs, np.atleast_1d(reward), done, info  # pyright: ignore

    def close(self) -> None:
        for env in self.envs:
            env.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self.envs[i], attr_name, None) for i in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        for i in self._get_indices(indices):
            setattr(self.envs[i], attr_name, value)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kw: Any) -> list[Any]:
        return [getattr(self.envs[i], method_name)(*args, **kw) for i in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False for _ in self._get_indices(indices)]


class BatchedVecEnv(VecEnv):
    """A Gymnasium vector environment that resets in the same step.

    ``batched_infos`` holds the last step's info as arrays, so that a thousand dicts need not be
    made.
    """

    def __init__(self, env: gymnasium.vector.VectorEnv) -> None:
        self.env = env
        self.batched_infos: dict[str, Any] = {}
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)

    def reset(self) -> np.ndarray:
        seen, _ = self.env.reset(seed=self._seeds[0])
        self._reset_seeds()
        return seen

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = actions

    def step_wait(self) -> tuple[Any, Any, Any, Any]:
        seen, rewards, terminated, truncated, infos = self.env.step(self._actions)
        dones = terminated | truncated
        self.batched_infos = infos
        each: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for i in np.flatnonzero(dones):
            each[i] = {
                "terminal_observation": infos["final_obs"][i],
                "TimeLimit.truncated": bool(truncated[i] and not terminated[i]),
            }
        return seen, rewards, dones, each

    def close(self) -> None:
        self.env.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self.env, attr_name, None) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        setattr(self.env, attr_name, value)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kw: Any) -> list[Any]:
        return [getattr(self.env, method_name)(*args, **kw) for _ in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False for _ in self._get_indices(indices)]


class SignalVecEnv(VecEnvWrapper):
    """Turns vector rewards and infos into signals: (N, K + L) in the place of the reward.

    Raises:
        ValueError: a signal is not a finite number; episode and step are named.
    """

    def __init__(self, venv: VecEnv, signals: Signals) -> None:
        super().__init__(venv)
        self.signals = signals
        self._steps = np.zeros(venv.num_envs, dtype=int)
        self._episodes = np.zeros(venv.num_envs, dtype=int)

    def reset(self) -> Any:
        self._steps[:] = 0
        return self.venv.reset()

    def step_wait(self) -> tuple[Any, Any, Any, Any]:
        seen, rewards, dones, infos = self.venv.step_wait()
        batched = getattr(self.venv, "batched_infos", None)
        values = self.signals.read(np.asarray(rewards), infos if batched is None else batched)
        if not np.isfinite(values).all():
            env, at = (int(i) for i in np.argwhere(~np.isfinite(values))[0])
            raise ValueError(
                f"reward of environment {env} holds {values[env, at]} in signal {at}: episode "
                f"{self._episodes[env]}, step {self._steps[env]}; mend the environment"
            )
        self._steps = np.where(dones, 0, self._steps + 1)
        self._episodes += np.asarray(dones)
        return seen, values, dones, infos


EnvLike = Any


def make_vec_env(env: EnvLike, n_envs: int = 1, processes: bool = False) -> VecEnv:
    """A `VecEnv` with vector rewards.

    Args:
        env: an id of mo-gymnasium or Gymnasium, a factory, an environment, a Gymnasium vector
            environment, or a VecEnv.
        n_envs: copies, where copies can be made.
        processes: one process a copy (needed where a simulator allows one simulation a process).

    Raises:
        ValueError: rewards are scalar.
    """
    if isinstance(env, VecEnv):
        return env
    if isinstance(env, gymnasium.vector.VectorEnv):
        return BatchedVecEnv(env)
    if isinstance(env, gymnasium.Env):
        _reward_dim(env)
        return LocalVecEnv([lambda: env])
    make = env if callable(env) else EnvById(env)
    if processes:
        from stable_baselines3.common.vec_env import SubprocVecEnv

        return SubprocVecEnv([make] * n_envs, start_method="spawn")  # pyright: ignore
    made = LocalVecEnv([make] * n_envs)  # pyright: ignore
    _reward_dim(made.envs[0])
    return made


class EnvById:
    """A factory that a process can be given."""

    def __init__(self, name: str, **settings: Any) -> None:
        self.name, self.settings = name, settings

    def __call__(self) -> gymnasium.Env:
        with contextlib.suppress(ImportError):
            import mo_gymnasium  # noqa: F401  (registers its ids)
        import armillary.rl.environments  # noqa: F401  (registers ours)

        return gymnasium.make(self.name, disable_env_checker=True, **self.settings)


def _reward_dim(env: gymnasium.Env) -> int:
    space = getattr(env.unwrapped, "reward_space", None)
    if space is None or len(space.shape) != 1:
        name = env.spec.id if env.spec else type(env.unwrapped).__name__
        raise ValueError(
            f"env {name} has no vector reward (`reward_space` of mo-gymnasium): max-min needs two "
            "or more objectives"
        )
    return int(space.shape[0])


def reward_dim(venv: VecEnv) -> int:
    """Components of the reward of a `VecEnv`."""
    space = venv.get_attr("reward_space", [0])[0]
    if space is None:
        unwrapped = venv.get_attr("unwrapped", [0])[0]
        space = getattr(unwrapped, "reward_space", None)
    if space is None or len(space.shape) != 1:
        raise ValueError(
            "env has no vector reward (`reward_space` of mo-gymnasium): max-min needs two or more "
            "objectives"
        )
    return int(space.shape[0])
