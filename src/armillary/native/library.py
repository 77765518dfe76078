"""Finding and loading the compiled library, and choosing an instruction set."""

from __future__ import annotations

import ctypes
import functools
import os
import warnings
from pathlib import Path

#: Names an instruction set for the whole process: scalar, avx2, avx512, or portable (numpy).
ISA_VARIABLE = "ARMILLARY_ISA"
#: From the slowest to the fastest; the position is the number that the library knows it by.
NAMES = ("scalar", "avx2", "avx512")
PORTABLE = "portable"
VERSION = 2

_pointer, _int, _long = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
_SIGNATURES: dict[str, tuple[object, list[object]]] = {
    "arm_version": (_int, []),
    "arm_supported": (_int, [_int]),
    "arm_pack": (
        None,
        [_int, _pointer, _int, _long, _long, _long, _long, _pointer, _int],
    ),
    "arm_tree_gemm": (
        None,
        [_int, _int, _pointer, _long, _long, _long, _pointer, _int, _long, _long, _long, _long,
         _long, _pointer, _pointer, _pointer, _pointer, _long],
    ),
    "arm_rms_norm": (
        None, [_int, _int, _pointer, _pointer, _pointer, _long, _long, ctypes.c_float]
    ),
    "arm_log_softmax": (None, [_int, _int, _pointer, _pointer, _long, _long]),
    "arm_elementwise": (None, [_int, _int, _int, _pointer, _pointer, _long]),
    "arm_attention": (
        None,
        [_int, _int, _pointer, _pointer, _pointer, _pointer, _pointer, _pointer, _pointer, _pointer,
         _long, ctypes.c_float, _int],
    ),
    "arm_combine": (
        None, [_int, _pointer, _pointer, _pointer, _long, _long, _long, _pointer]
    ),
    "arm_quantised_gemm": (
        None,
        [_int, _int, _pointer, _long, _long, _pointer, _pointer, _pointer, _int, _long, _long,
         _pointer],
    ),
    "arm_exchange_bytes": (_long, [_int, _long]),
    "arm_exchange_gather": (
        _int,
        [_pointer, _int, _int, _long, _pointer, _pointer, _long, ctypes.c_double, _pointer],
    ),
    "arm_exchange_tree": (
        _int,
        [_int, _pointer, _int, _int, _long, _pointer, _pointer, _long, _long, _pointer, _pointer,
         _long, _pointer, _pointer, ctypes.c_double, _pointer],
    ),
}  # fmt: skip


class NativeLibraryWarning(RuntimeWarning):
    """The compiled library is absent: the same bits are computed slowly."""


def path() -> Path:
    """Where the library lies if it was built."""
    return Path(__file__).with_name("_native.so")


@functools.cache
def load() -> ctypes.CDLL | None:
    """The library, or None (with a warning, once) where it is absent or of another version."""
    try:
        library = ctypes.CDLL(str(path()))
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
        if library.arm_version() != VERSION:
            raise OSError(f"it has version {library.arm_version()}, not {VERSION}")
    except (OSError, AttributeError) as error:
        warnings.warn(
            f"armillary.native has no compiled library ({error}); results are the same bits, some "
            "thousand times slower. Install a wheel, or a C++ compiler and then reinstall.",
            NativeLibraryWarning,
            stacklevel=3,
        )
        return None
    return library


@functools.cache
def instruction_sets() -> tuple[str, ...]:
    """The paths of the compiled library that this processor can run, the slowest first."""
    library = load()
    if library is None:
        return ()
    return tuple(name for i, name in enumerate(NAMES) if library.arm_supported(i))


@functools.cache
def default_isa() -> str:
    """What is used when no ``isa`` is given: ``ARMILLARY_ISA``, else the fastest there is.

    Raises:
        ValueError: ``ARMILLARY_ISA`` names none that this machine has.
    """
    asked = os.environ.get(ISA_VARIABLE, "")
    if asked == PORTABLE:
        return PORTABLE
    available = instruction_sets()
    if asked:
        return known(asked, f"{ISA_VARIABLE}=")
    return available[-1] if available else PORTABLE


def known(isa: str, what: str = "isa=") -> str:
    """The name as given, if this machine has it.

    Raises:
        ValueError: it has not.
    """
    if isa != PORTABLE and isa not in instruction_sets():
        raise ValueError(
            f"{what}{isa!r}: this machine has {', '.join((*instruction_sets(), PORTABLE))}"
        )
    return isa
