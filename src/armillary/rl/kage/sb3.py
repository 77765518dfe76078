"""Policies of Stable-Baselines3 under pairs of looks: a PPO .zip is opened and acts on our frames.

Their weights are PyTorch's, so that frames leave JAX once a step; looks share compiled programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from armillary.errors import require
from armillary.rl.kage.assets import load as load_assets
from armillary.rl.kage.config import check_pair
from armillary.rl.kage.engine import Kage, KageParams
from armillary.rl.kage.pairs import Nested, Pair
from armillary.rl.kage.params import Config, StaticCaps, load_config

if TYPE_CHECKING:
    import pandas as pd


def load(path: Path) -> Any:
    """A PPO model.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no saved PPO model, or reads other observations than ours.
    """
    if not path.is_file():
        raise FileNotFoundError(f"no policy file {str(path)!r}")
    ppo = require("stable_baselines3", what="kage", extra="rl").PPO
    try:
        model = ppo.load(path, device="cpu")
    except Exception as error:  # a stranger's file may fail in any way
        raise ValueError(f"{str(path)!r} is no saved PPO of Stable-Baselines3: {error}") from error
    shape = model.observation_space.shape
    if shape is None or len(shape) != 3 or 3 not in (shape[0], shape[2]):
        raise ValueError(f"{str(path)!r} reads {shape}: RGB frames of 32, 64 or 128 are given")
    return model


def evaluate(path: Path, pairs: Sequence[Pair], episodes: int = 32, seed: int = 0) -> pd.DataFrame:
    """As `evaluation.evaluate`, without the policy gap; episodes run as one batch."""
    import pandas as pd

    model = load(path)
    for pair in pairs:
        check_pair(pair.train, pair.eval)
    configs = [load_config(look) for pair in pairs for look in (pair.train, pair.eval)]
    shape = model.observation_space.shape
    runner = _Runner(
        Kage(StaticCaps.union([c.caps for c in configs]), size=max(shape)), model, episodes, seed
    )
    rows = []
    for pair in pairs:
        base, shifted = runner.look(pair.train), runner.look(pair.eval)
        rows.append(
            {
                "id": pair.id,
                "axis": pair.axis,
                "success_train": base[0],
                "success_eval": shifted[0],
                "success_drop": base[0] - shifted[0],
                "distance_train": base[1],
                "distance_eval": shifted[1],
                "return_train": base[2],
                "return_eval": shifted[2],
                "policy_gap": float("nan"),
            }
        )
    return pd.DataFrame(rows)


class _Runner:
    """Plays a look once and remembers it."""

    def __init__(self, kage: Kage, model: Any, episodes: int, seed: int) -> None:
        self._kage, self._model, self._n, self._seed = kage, model, episodes, seed
        self._reset = jax.jit(kage.reset_batch)
        self._step = jax.jit(kage.step_batch)
        self._render = jax.jit(kage.render_batch)
        self._known: dict[str, tuple[float, float, float]] = {}

    def look(self, look: Nested) -> tuple[float, float, float]:
        """Success, distance and return."""
        key = repr(look)
        if key not in self._known:
            self._known[key] = self._play(load_config(look))
        return self._known[key]

    def _play(self, config: Config) -> tuple[float, float, float]:
        params = KageParams(config.latent, config.visual, load_assets(self._kage.caps))
        keys = jax.random.split(jax.random.PRNGKey(self._seed), self._n)
        states = self._reset(keys, params)
        total = np.zeros(self._n)
        first = self._model.observation_space.shape[0] == 3
        for _ in range(int(config.latent.episode_length)):
            obs = np.asarray(self._render(states, params))
            obs = obs.transpose(0, 3, 1, 2) if first else obs
            actions, _ = self._model.predict(obs, deterministic=False)
            states, outcome = self._step(states, np.asarray(actions, np.int32), params)
            total += np.asarray(outcome.reward)
        final = states.world
        return (
            float(np.mean(final.success_once)),
            float(np.mean(final.x - final.x0)),
            float(total.mean()),
        )
