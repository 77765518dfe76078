"""Public names that are loaded when first used (PEP 562), with a clear word on missing extras."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from armillary.errors import MissingExtra


def attach(
    package: str, homes: Mapping[str, str], *, slug: str = "", extra: str = ""
) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package whose public names live in private modules.

    Args:
        package: the package's ``__name__``.
        homes: public name -> module of the package that defines it.
        slug: the method that the package holds, for the message.
        extra: the extra that brings the packages which those modules import.

    Returns:
        A function that imports a name's module on first use and remembers the value.

    Raises:
        MissingExtra: (from the returned function) a module of another package is absent.
        AttributeError: (from the returned function) there is no such public name.
    """

    def __getattr__(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            value = getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
        except ModuleNotFoundError as error:
            own = package.split(".")[0]
            if not extra or (error.name or own).split(".")[0] == own:
                raise
            raise MissingExtra(slug or package, extra, error.name or "") from None
        setattr(sys.modules[package], name, value)
        return value

    return __getattr__
