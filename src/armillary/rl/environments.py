"""The Gymnasium ids of this field, registered when Gymnasium is imported.

Gymnasium calls `register` through the entry-point group ``gymnasium.envs`` with the namespace
``armillary`` set, so that ``gym.make("armillary/Kage-v0")`` needs no import of ours. Entry points
are dotted names: nothing of a method is imported before its environment is made.
"""

from __future__ import annotations

#: Name (without the namespace) -> the arguments of `gymnasium.register`.
ENVIRONMENTS: dict[str, dict[str, object]] = {}

_MAXMIN = "armillary.rl.maxmin_morl.envs"
ENVIRONMENTS |= {
    "BuildingZones-v0": {"entry_point": f"{_MAXMIN}.building:BuildingZones"},
    "TrafficCO2-v0": {"entry_point": f"{_MAXMIN}.traffic:TrafficCO2"},
    "EnergyHopper-v0": {"entry_point": f"{_MAXMIN}.hopper:EnergyHopper"},
}


def register() -> None:
    """Register every environment of `ENVIRONMENTS` in the namespace that is current."""
    import gymnasium

    for name, arguments in ENVIRONMENTS.items():
        gymnasium.register(id=name, **arguments)  # pyright: ignore[reportArgumentType]
