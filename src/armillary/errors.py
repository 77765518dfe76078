"""Errors that the whole library shares, and how they become exit codes.

Every error is a built-in exception type or a named subclass of one, and its message names the
argument, what was given, what is accepted, and what to do.
"""

from __future__ import annotations

import enum
import importlib
from types import ModuleType


class ExitCode(enum.IntEnum):
    """What the process says to the shell."""

    OK = 0
    FAILED = 1
    BAD_INPUT = 2
    PARTIAL = 3
    INTERRUPTED = 130


class MissingExtra(ImportError):
    """A method was asked for whose optional packages are not installed."""

    def __init__(self, what: str, extra: str, missing: str = "") -> None:
        self.what, self.extra, self.missing = what, extra, missing
        detail = f" (no module named {missing!r})" if missing else ""
        super().__init__(
            f"{what} needs the extra '{extra}': pip install 'armillary[{extra}]'{detail}"
        )


class UnknownMethod(LookupError):
    """No method of that slug is in the catalogue."""


#: What a user can mend by giving other input: shown without a traceback, exit code 2.
BAD_INPUT_TYPES: tuple[type[BaseException], ...] = (
    ValueError,
    TypeError,
    FileNotFoundError,
    FileExistsError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
    ImportError,
    UnknownMethod,
)


def require(module: str, *, what: str, extra: str) -> ModuleType:
    """Import an optional module, or say in one line which extra brings it.

    Args:
        module: dotted name, such as ``"sklearn.base"``.
        what: who needs it (a method's slug).
        extra: the extra of this package that installs it.

    Raises:
        MissingExtra: the module, or the package that holds it, is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name and module.split(".")[0] != error.name.split(".")[0]:
            raise
        raise MissingExtra(what, extra, error.name or module) from None
