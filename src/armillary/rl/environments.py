<<<<<<< HEAD
"""The Gymnasium ids of this field: importing this module registers them.

Gymnasium 1.x loads no plug-ins by itself: in
``gym.make("armillary.rl.environments:armillary/Kage-v0")`` it imports the module before the colon
first. Older releases call `register` through the
entry-point group ``gymnasium.envs``. Entry points of environments are dotted names: nothing of a
method is imported before its environment is made.
=======
"""The Gymnasium ids of this field, in the namespace ``armillary``.

Importing this module registers them, which Gymnasium itself does for an id such as
``armillary.rl.environments:armillary/BuildingZones-v0``; after the import the plain id is enough.
(Gymnasium 1 no longer reads the entry-point group ``gymnasium.envs``; older ones do.)
Entry points are dotted names: nothing of a method is imported before its environment is made.
>>>>>>> morl
"""

from __future__ import annotations

<<<<<<< HEAD
NAMESPACE = "armillary"
=======
import importlib.util
>>>>>>> morl

#: Name (without the namespace) -> the arguments of `gymnasium.register`.
ENVIRONMENTS: dict[str, dict[str, object]] = {
    "Kage-v0": {
        "entry_point": "armillary.rl.kage.gymnasium_env:KageGymnasium",
        "vector_entry_point": "armillary.rl.kage.gymnasium_env:KageVectorEnv",
    },
}

_MAXMIN = "armillary.rl.maxmin_morl.envs"
ENVIRONMENTS |= {
    "BuildingZones-v0": {"entry_point": f"{_MAXMIN}.building:BuildingZones"},
    "TrafficCO2-v0": {"entry_point": f"{_MAXMIN}.traffic:TrafficCO2"},
    "EnergyHopper-v0": {"entry_point": f"{_MAXMIN}.hopper:EnergyHopper"},
}


def register() -> None:
<<<<<<< HEAD
    """Register every environment of `ENVIRONMENTS` that is not yet registered."""
    import gymnasium
=======
    """Register every environment of `ENVIRONMENTS` that is not registered yet."""
>>>>>>> morl
    from gymnasium.envs import registration

    inside = registration.current_namespace == NAMESPACE
    for name, arguments in ENVIRONMENTS.items():
<<<<<<< HEAD
        full = f"{NAMESPACE}/{name}"
        if full not in registration.registry:
            gymnasium.register(id=name if inside else full, **arguments)  # pyright: ignore[reportArgumentType]


register()
=======
        full = f"armillary/{name}"
        if full not in registration.registry:
            registration.register(id=full, **arguments)  # pyright: ignore[reportArgumentType]


if importlib.util.find_spec("gymnasium"):
    register()
>>>>>>> morl
