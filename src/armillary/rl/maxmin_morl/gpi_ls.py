"""Run in the environment of morl-baselines: a front of `resource-gathering-v0` by tabular GPI-LS.

Usage: VENV/bin/python gpi_ls.py STEPS GAMMA SEED. Objectives are gold, gem and minus one a step.
The discounted returns of the policies found are printed as a JSON list of lists on the last line.
Nothing of Armillary is imported.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np


def main(steps: int, gamma: float, seed: int) -> None:
    """Learn the front and print it."""
    import gymnasium
    import mo_gymnasium
    from morl_baselines.multi_policy.multi_policy_moqlearning import (  # pyright: ignore
        mp_mo_q_learning,
    )

    class Steps(gymnasium.Wrapper):
        """Gold, gem and the cost of a step."""

        def __init__(self, env: gymnasium.Env) -> None:
            super().__init__(env)
            low, high = np.array([0.0, 0.0, -1.0]), np.array([1.0, 1.0, -1.0])
            space = gymnasium.spaces.Box(low.astype(np.float32), high.astype(np.float32))
            self.reward_space = self.unwrapped.reward_space = space  # pyright: ignore

        def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
            seen, reward, terminated, truncated, info = self.env.step(action)
            vector = np.array([*np.asarray(reward)[1:], -1.0], dtype=np.float32)
            return seen, vector, terminated, truncated, info

    make = mo_gymnasium.make  # pyright: ignore
    env, judge = (Steps(make("resource-gathering-v0")) for _ in range(2))
    agent = mp_mo_q_learning.MPMOQLearning(
        env,
        learning_rate=0.3,
        gamma=gamma,
        initial_epsilon=1.0,
        final_epsilon=0.1,
        epsilon_decay_steps=steps,  # over all iterations: a tenth of them finds no gold at all
        weight_selection_algo="gpi-ls",
        use_gpi_policy=True,
        epsilon_ols=0.0,
        seed=seed,
        log=False,
    )
    agent.train(
        total_timesteps=steps,
        eval_env=judge,
        ref_point=np.array([-1.0, -1.0, -100.0]),
        timesteps_per_iteration=steps // 10,
        num_eval_episodes_for_front=20,
        eval_freq=steps,
    )
    front = [np.asarray(value, dtype=float).tolist() for value in agent.linear_support.ccs]
    print(json.dumps(front))


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
