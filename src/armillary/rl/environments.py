"""The Gymnasium ids of this field, registered when Gymnasium is imported.

Gymnasium calls `register` through the entry-point group ``gymnasium.envs`` with the namespace
``armillary`` set, so that ``gym.make("armillary/Kage-v0")`` needs no import of ours. Entry points
are dotted names: nothing of a method is imported before its environment is made.
"""

from __future__ import annotations

#: Name (without the namespace) -> the arguments of `gymnasium.register`.
ENVIRONMENTS: dict[str, dict[str, object]] = {
    "Kage-v0": {
        "entry_point": "armillary.rl.kage.gymnasium_env:KageGymnasium",
        "vector_entry_point": "armillary.rl.kage.gymnasium_env:KageVectorEnv",
    },
}


def register() -> None:
    """Register every environment of `ENVIRONMENTS` in the namespace that is current."""
    import gymnasium

    for name, arguments in ENVIRONMENTS.items():
        gymnasium.register(id=name, **arguments)  # pyright: ignore[reportArgumentType]
