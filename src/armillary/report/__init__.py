"""The report: evidence as a static site that needs no network and no server.

It reads `Bundle` objects and catalogue cards, nothing else::

    from armillary import report

    report.build([bundle], "armillary-report")
    report.open_site("armillary-report")
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from armillary.report.serving import Server as Server
    from armillary.report.site import build as build
    from armillary.report.site import open_site as open_site

_HOMES = {"Server": "serving", "build": "site", "open_site": "site"}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
