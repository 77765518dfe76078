"""A hopper that has to save energy: mo-hopper with its control cost out of the reward.

``mo-hopper-v5`` of mo-gymnasium gives [forward speed, height, minus control cost], each with a
bonus for staying healthy. This wrapper keeps speed and height, in units in which both are about 1
for a good hop, and puts the energy into ``info["energy"]`` = -sum a^2 a step.
"""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np

#: Sizes of a good step: metres a second, and the environment's reward for height.
SCALE = (2.0, 2.0)


class EnergyHopper(gymnasium.Env):
    """Speed and height as objectives, energy as a limit.

    Args:
        env: an environment with the reward vector of mo-hopper; None makes ``mo-hopper-v5``.
        scale: sizes by which the two objectives are divided.

    Raises:
        ImportError: mo-gymnasium or MuJoCo is not installed.
    """

    metadata: ClassVar[dict[str, Any]] = {
        "render_modes": ["human", "rgb_array", "depth_array"],
        "render_fps": 125,
    }

    def __init__(
        self,
        env: gymnasium.Env | None = None,
        scale: tuple[float, float] = SCALE,
        render_mode: str | None = None,
    ) -> None:
        self.env = _hopper(render_mode) if env is None else env
        self.render_mode = render_mode
        self.observation_space, self.action_space = (
            self.env.observation_space,
            self.env.action_space,
        )
        self.scale = np.array(scale)
        self.reward_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.reward_dim = 2

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        seen, reward, terminated, truncated, info = self.env.step(action)
        energy = -float(np.square(action).sum())
        scaled = np.asarray(reward)[:2] / self.scale
        return seen, scaled, terminated, truncated, {**info, "energy": energy}

    def render(self) -> Any:
        return self.env.render()

    def close(self) -> None:
        self.env.close()


def _hopper(render_mode: str | None) -> gymnasium.Env:
    try:
        import mo_gymnasium

        return mo_gymnasium.make("mo-hopper-v5", render_mode=render_mode)  # pyright: ignore
    except ImportError as error:
        raise ImportError(
            f"EnergyHopper needs mo-gymnasium, MuJoCo: pip install 'armillary[rl-peers]' ({error})"
        ) from None
