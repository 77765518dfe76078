"""Settings of the learners in the evidence: chosen on seeds 1000 and above, the same for all.

What differs between contenders is what makes them that: which dual variables move, and whose
gradient. Every contender runs with the learner, the network, the steps and the dual steps below.
"""

from __future__ import annotations

from typing import Any

#: Published threshold on the discounted sum of -sum |a| / 5 a step, of 480 hours.
BUILDING_LIMIT = -180.0
#: Steps of an episode that nothing cuts short.
LENGTHS = {"building": 480, "hopper": 1000, "traffic": 120}
#: Parallel buildings; rollouts are short and many, because zones answer within hours.
BUILDING_ENVS = 64

_BUILDING: dict[str, Any] = {
    "n_steps": 16,
    "batch_size": 256,
    "n_epochs": 5,
    "gae_lambda": 0.5,
    "noise": (0.37, 0.1),
}
_HOPPER: dict[str, Any] = {
    "n_envs": 8,
    "n_steps": 128,
    "batch_size": 256,
    "n_epochs": 10,
    "learning_rate": 3e-4,
    "gae_lambda": 0.95,
    "noise": (0.6, 0.1),
}
_TRAFFIC: dict[str, Any] = {
    "n_envs": 4,
    "n_steps": 60,
    "batch_size": 120,
    "n_epochs": 10,
    "learning_rate": 1e-3,
    "gae_lambda": 0.9,
    "gamma": 0.98,
}
HOPPER_LIMIT = "info:energy>=-40@discounted"
TRAFFIC_LIMIT = "info:co2>=-35000@episode"


def building() -> dict[str, Any]:
    """Arguments of the learner on `BuildingZones`; the learning rate falls to a twentieth."""
    return {**_BUILDING, "learning_rate": lambda left: 1e-3 * max(left, 0.05)}


def hopper() -> dict[str, Any]:
    """Arguments of the learner on `EnergyHopper`."""
    return dict(_HOPPER)


def traffic() -> dict[str, Any]:
    """Arguments of the learner on `TrafficCO2`."""
    return dict(_TRAFFIC)


#: What each contender changes.
VARIANTS: dict[str, dict[str, Any]] = {
    "ours": {},
    "uniform-weights": {"update_w": False, "update_u": False},
    "lagrangian-mean": {"update_w": False},
    "unlimited": {"update_u": False},
    "smoothing": {"update_u": False, "gradient": "smoothing"},
}
