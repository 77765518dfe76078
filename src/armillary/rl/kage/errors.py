"""What can be wrong with a configuration, a pair or a picture."""

from __future__ import annotations


class ConfigError(ValueError):
    """A configuration holds a key or a value that the environment does not know."""


class AxisLeakError(ValueError):
    """Two configurations that should differ in their look alone differ in what governs the world.

    Attributes:
        keys: the dotted names of the latent keys that differ.
    """

    def __init__(self, message: str, keys: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.keys = keys


class AssetError(ValueError):
    """A background folder is empty, or a picture cannot be read."""
