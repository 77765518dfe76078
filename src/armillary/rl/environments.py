"""The Gymnasium ids of this field, in the namespace ``armillary``.

Importing this module registers them, which Gymnasium itself does for an id such as
``armillary.rl.environments:armillary/BuildingZones-v0``; after the import the plain id is enough.
(Gymnasium 1 no longer reads the entry-point group ``gymnasium.envs``; older ones do.)
Entry points are dotted names: nothing of a method is imported before its environment is made.
"""

from __future__ import annotations

import importlib.util

#: Name (without the namespace) -> the arguments of `gymnasium.register`.
ENVIRONMENTS: dict[str, dict[str, object]] = {}

_MAXMIN = "armillary.rl.maxmin_morl.envs"
ENVIRONMENTS |= {
    "BuildingZones-v0": {"entry_point": f"{_MAXMIN}.building:BuildingZones"},
    "TrafficCO2-v0": {"entry_point": f"{_MAXMIN}.traffic:TrafficCO2"},
    "EnergyHopper-v0": {"entry_point": f"{_MAXMIN}.hopper:EnergyHopper"},
}


def register() -> None:
    """Register every environment of `ENVIRONMENTS` that is not registered yet."""
    from gymnasium.envs import registration

    for name, arguments in ENVIRONMENTS.items():
        full = f"armillary/{name}"
        if full not in registration.registry:
            registration.register(id=full, **arguments)  # pyright: ignore[reportArgumentType]


if importlib.util.find_spec("gymnasium"):
    register()
