"""The Gymnasium ids of this field: importing this module registers them.

Gymnasium 1.x loads no plug-ins by itself: in
``gym.make("armillary.rl.environments:armillary/Kage-v0")`` it imports the module before the colon
first; after the import the plain id is enough. Older releases call `register` through the
entry-point group ``gymnasium.envs``. Entry points of environments are dotted names: nothing of a
method is imported before its environment is made.
"""

from __future__ import annotations

import importlib.util

NAMESPACE = "armillary"
_MAXMIN = "armillary.rl.maxmin_morl.envs"

#: Name (without the namespace) -> the arguments of `gymnasium.register`.
ENVIRONMENTS: dict[str, dict[str, object]] = {
    "Kage-v0": {
        "entry_point": "armillary.rl.kage.gymnasium_env:KageGymnasium",
        "vector_entry_point": "armillary.rl.kage.gymnasium_env:KageVectorEnv",
    },
    "BuildingZones-v0": {"entry_point": f"{_MAXMIN}.building:BuildingZones"},
    "TrafficCO2-v0": {"entry_point": f"{_MAXMIN}.traffic:TrafficCO2"},
    "EnergyHopper-v0": {"entry_point": f"{_MAXMIN}.hopper:EnergyHopper"},
}


def register() -> None:
    """Register every environment of `ENVIRONMENTS` that is not yet registered."""
    from gymnasium.envs import registration

    inside = registration.current_namespace == NAMESPACE
    for name, arguments in ENVIRONMENTS.items():
        full = f"{NAMESPACE}/{name}"
        if full not in registration.registry:
            registration.register(id=name if inside else full, **arguments)  # pyright: ignore[reportArgumentType]


if importlib.util.find_spec("gymnasium"):
    register()
