"""Where outputs of a timed contender go, so that no compiler can drop the work behind them."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

_total = 0


def consume(*values: Any) -> int:
    """Use every byte of the values: lazy arrays are computed, device work is waited for.

    Arrays of numpy, torch, jax and whatever offers ``__array__`` are brought to the host and
    checksummed; mappings and sequences are walked; anything else enters by its ``repr``.

    Args:
        *values: outputs of the code that is being timed.

    Returns:
        A checksum of everything this process has consumed so far. It depends on every byte, so
        the work that made them cannot be left out.
    """
    global _total
    for value in values:
        _total = _absorb(value, _total)
    return _total


def _absorb(value: Any, total: int) -> int:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return zlib.crc32(value, total)
    if value is None or isinstance(value, (str, int, float, complex, bool)):
        return zlib.crc32(repr(value).encode("utf-8", "surrogatepass"), total)
    if isinstance(value, Mapping):
        for key, item in value.items():
            total = _absorb(item, _absorb(key, total))
        return total
    if isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            total = _absorb(item, total)
        return total
    if hasattr(value, "detach"):  # torch: a copy on the host waits for the device
        value = value.detach().cpu()
        if not _numpy_knows(value):
            value = value.float()
    if hasattr(value, "tocoo") and hasattr(value, "data"):  # scipy's sparse matrices
        coo = value.tocoo()
        return _absorb((coo.row, coo.col, coo.data), total)
    if hasattr(value, "__array__"):
        import numpy as np

        array = np.ascontiguousarray(np.asarray(value))
        if array.dtype != object:
            return zlib.crc32(array.reshape(-1).view(np.uint8).data, total)
        return _absorb(array.reshape(-1).tolist(), total)
    return zlib.crc32(repr(value).encode("utf-8", "surrogatepass"), total)


def _numpy_knows(tensor: Any) -> bool:
    """Whether numpy has the tensor's type (it has no bfloat16)."""
    return "bfloat16" not in str(tensor.dtype) and "float8" not in str(tensor.dtype)
