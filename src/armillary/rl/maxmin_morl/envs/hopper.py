"""A hopper that has to save energy: mo-hopper with its control cost out of the reward.

``mo-hopper-v5`` of mo-gymnasium gives [forward speed, height, minus control cost], each with a
bonus for staying healthy. This wrapper keeps speed and height, in units in which both are about 1
for a good hop, and puts the energy into ``info["energy"]`` = -sum a^2 a step.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

#: Sizes of a good step: metres a second, and the environment's reward for height.
SCALE = (2.0, 2.0)


class EnergyHopper(gymnasium.Wrapper):
    """Speed and height as objectives, energy as a limit.

    Args:
        env: an environment with the reward vector of mo-hopper; None makes ``mo-hopper-v5``.
        scale: sizes by which the two objectives are divided.

    Raises:
        ImportError: mo-gymnasium or MuJoCo is not installed.
    """

    def __init__(
        self,
        env: gymnasium.Env | None = None,
        scale: tuple[float, float] = SCALE,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(_hopper(render_mode) if env is None else env)
        self.scale = np.array(scale)
        self.reward_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.reward_dim = 2

    @property
    def unwrapped(self) -> Any:  # the wrapper's own reward space is the one that counts
        return self

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        seen, reward, terminated, truncated, info = self.env.step(action)
        energy = -float(np.square(action).sum())
        return (
            seen,
            np.asarray(reward)[:2] / self.scale,
            terminated,
            truncated,
            {**info, "energy": energy},
        )


def _hopper(render_mode: str | None) -> gymnasium.Env:
    try:
        import mo_gymnasium

        return mo_gymnasium.make("mo-hopper-v5", render_mode=render_mode)
    except ImportError as error:
        raise ImportError(
            f"EnergyHopper needs mo-gymnasium, MuJoCo: pip install 'armillary[rl-peers]' ({error})"
        ) from None


def make(**settings: Any) -> EnergyHopper:
    """What the id ``armillary/EnergyHopper-v0`` makes (it wants no wrapper's class there)."""
    return EnergyHopper(**settings)
