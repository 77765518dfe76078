"""Where Armillary keeps what belongs to the user.

``ARMILLARY_HOME`` moves everything into one folder; otherwise the XDG folders are used:
``$XDG_DATA_HOME/armillary`` for results and ``$XDG_CACHE_HOME/armillary`` for what can be rebuilt.
"""

from __future__ import annotations

import os
from pathlib import Path

HOME_VARIABLE = "ARMILLARY_HOME"


def _folder(xdg: str, default: str, inside_home: str) -> Path:
    if home := os.environ.get(HOME_VARIABLE):
        return Path(home).expanduser() / inside_home
    base = os.environ.get(xdg)
    return (Path(base) if base else Path.home() / default) / "armillary"


def data_dir() -> Path:
    """The folder of results (not created)."""
    return _folder("XDG_DATA_HOME", ".local/share", "data")


def cache_dir() -> Path:
    """The folder of what can be rebuilt: converted models, artefacts (not created)."""
    return _folder("XDG_CACHE_HOME", ".cache", "cache")
