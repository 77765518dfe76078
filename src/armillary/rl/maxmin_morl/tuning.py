"""Settings of the learners in the evidence: chosen on seeds 1000 and above.

What differs between contenders is what makes them that: which dual variables move, and whose
gradient. The learner, the network, the steps and all settings below are the same for all. They are
those that gave *each* of ours and the Lagrangian method its largest worst objective on the
building, of what was tried for both: rollouts of 16 steps with a last noise of 0.1 or 0.05, and of
8 steps with 0.1.
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
    "n_steps": 8,
    "batch_size": 256,
    "n_epochs": 5,
    "gae_lambda": 0.5,
    "noise": (0.37, 0.1),
    "eta_w": 0.6,
}
_HOPPER: dict[str, Any] = {
    "n_envs": 8,
    "n_steps": 128,
    "batch_size": 256,
    "n_epochs": 10,
    "learning_rate": 3e-4,
    "gae_lambda": 0.95,
    "policy_kwargs": {"log_std_init": -0.5},
}
_TRAFFIC: dict[str, Any] = {
    "n_envs": 8,
    "n_steps": 30,
    "batch_size": 80,
    "ent_coef": 0.01,
    "n_epochs": 10,
    "learning_rate": 1e-3,
    "gae_lambda": 0.9,
    "gamma": 0.98,
}
#: Cars an hour from south, east, north and west: as many as the crossing can just let through, so
#: that approaches compete (at half as many, no queue is left and every method is fair).
TRAFFIC_RATES = (1200.0, 600.0, 900.0, 300.0)
#: Limits of hopper and traffic stand between what max-min without limits spends and what a policy
#: that keeps them spends (a hopper that hardly moves; the longest queue first): some 60 % of the
#: way on the hopper, a third of it on traffic, because the steps do not suffice for more.
HOPPER_LIMIT = "info:energy>=-40@discounted"
TRAFFIC_LIMIT = "info:co2>=-145000@episode"


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
