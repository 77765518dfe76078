"""The kernels as functions of numpy arrays, on the compiled library or on the portable path."""

from __future__ import annotations

import ctypes
import dataclasses
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.native import library, portable

Floats = NDArray[np.float32]
PANEL = 32


@dataclasses.dataclass(frozen=True)
class Packed:
    """Weights (columns, features) in panels of 32 columns, ready for `tree_gemm`.

    Attributes:
        panels: (panels, features, 32), float32, or uint16 holding bfloat16 (columns i and 16 + i
            side by side). Columns past the end are zero.
        columns: how many there are.
        features: k.
    """

    panels: NDArray[Any]
    columns: int
    features: int

    @property
    def bf16(self) -> bool:
        return self.panels.dtype == np.uint16

    def unpacked(self) -> Floats:
        """(columns, features) in float32, exactly."""
        flat = self.panels
        if self.bf16:
            flat = (flat.astype(np.uint32) << 16).view(np.float32)
            flat = flat.reshape(*flat.shape[:2], 16, 2).transpose(0, 1, 3, 2)
            flat = flat.reshape(*self.panels.shape)
        wide = flat.transpose(0, 2, 1).reshape(-1, self.features)
        return np.ascontiguousarray(wide[: self.columns], np.float32)


def _threads(threads: int | None) -> int:
    return max(1, threads if threads is not None else os.cpu_count() or 1)


def _choose(isa: str | None) -> tuple[Any, int]:
    """The library and the number of the instruction set, or (None, 0) for the portable path."""
    name = library.default_isa() if isa is None else library.known(isa)
    if name == library.PORTABLE:
        return None, 0
    return library.load(), library.NAMES.index(name)


def _address(array: NDArray[Any] | None) -> int | None:
    return None if array is None else array.ctypes.data


def _floats(name: str, array: Any, ndim: int | None = None) -> Floats:
    if not isinstance(array, np.ndarray) or array.dtype != np.float32:
        kind = getattr(array, "dtype", type(array).__name__)
        raise TypeError(f"{name} is {kind}: give a float32 array")
    if ndim is not None and array.ndim != ndim:
        raise ValueError(f"{name} has shape {array.shape}: {ndim} dimensions are needed")
    return np.ascontiguousarray(array)


def pack(w: NDArray[Any], *, threads: int | None = None) -> Packed:
    """Arrange weights in panels.

    Args:
        w: (columns, features), float32, or uint16 holding bfloat16; any strides.
        threads: at most so many; no bit depends on it.

    Raises:
        TypeError: another type of elements.
        ValueError: not two-dimensional.
    """
    if w.dtype not in (np.float32, np.uint16):
        raise TypeError(f"w is {w.dtype}: give float32, or uint16 holding bfloat16")
    if w.ndim != 2:
        raise ValueError(f"w has shape {w.shape}: (columns, features) is needed")
    columns, features = w.shape
    panels = np.empty((-(-columns // PANEL), features, PANEL), w.dtype)
    bf16 = w.dtype == np.uint16
    native = library.load()
    if native is None:
        padded = np.zeros((len(panels) * PANEL, features), w.dtype)
        padded[:columns] = w
        ordered = padded.reshape(-1, PANEL, features).transpose(0, 2, 1)
        if bf16:
            ordered = ordered.reshape(*ordered.shape[:2], 2, 16).transpose(0, 1, 3, 2)
        panels[:] = ordered.reshape(panels.shape)
        return Packed(panels, columns, features)
    size = w.itemsize
    native.arm_pack(
        _threads(threads), _address(w), 1 if bf16 else 0, columns, features, w.strides[0] // size,
        w.strides[1] // size, _address(panels), bf16,
    )  # fmt: skip
    return Packed(panels, columns, features)


def tree_gemm(
    x: Floats,
    w: Packed,
    *,
    leaf: int,
    merges: bytes,
    rounded: bytes | None = None,
    first: int = 0,
    bias: Floats | None = None,
    out: Floats | None = None,
    isa: str | None = None,
    threads: int | None = None,
) -> Floats:
    """x w^T with every sum over features added in one fixed tree.

    Inside a leaf one accumulator runs over ascending features by fused multiply-add; leaves are
    added by the stack program ``merges``. No result depends on how many rows or columns there are,
    on threads, or on the instruction set.

    Args:
        x: (rows, k) features ``first`` ... ``first + k - 1`` of the packed weights.
        w: packed weights (columns, features).
        leaf: features of a leaf; the last one may be shorter.
        merges: (leaves,) additions after each leaf.
        rounded: a flag a value, in program order: rounded to bfloat16; None: none is.
        first: where in the packed features x starts.
        bias: (columns,) added once at the end.
        out: (rows, columns) to write into.
        isa: scalar, avx2, avx512 or portable; None: the best.
        threads: at most so many; None: all cores.

    Returns:
        (rows, columns) float32. NaN is the canonical quiet NaN.

    Raises:
        ValueError: shapes that do not fit.
    """
    x = _floats("x", x, 2)
    rows, k = x.shape
    if k < 1 or first < 0 or first + k > w.features:
        raise ValueError(
            f"x has {k} features from {first}, the weights {w.features}: they must fit"
        )
    if leaf < 1 or len(merges) != -(-k // leaf):
        raise ValueError(f"merges has {len(merges)} entries: {-(-k // leaf)} leaves of {leaf}")
    if sum(merges) != len(merges) - 1 or (rounded and len(rounded) != 2 * len(merges) - 1):
        raise ValueError("merges and rounded must be the program of one tree")
    if bias is not None and bias.shape != (w.columns,):
        raise ValueError(f"bias has shape {bias.shape}: ({w.columns},) is needed")
    native, number = _choose(isa)
    if native is None:
        found = portable.tree_gemm(
            x, w.unpacked()[:, first : first + k], leaf, merges, rounded, bias
        )
        if out is None:
            return found
        out[:] = found
        return out
    if out is None:
        out = np.empty((rows, w.columns), np.float32)
    native.arm_tree_gemm(
        number, _threads(threads), _address(x), k, rows, k, _address(w.panels), w.bf16, w.columns,
        w.features, first, leaf, len(merges), merges, rounded or None, _address(bias),
        _address(out), w.columns,
    )  # fmt: skip
    return out


def rms_norm(
    x: Floats, w: Floats, eps: float, *, isa: str | None = None, threads: int | None = None
) -> Floats:
    """x / sqrt(mean(x^2) + eps) * w over the last axis, each row alone.

    Squares are summed in sixteen interleaved lanes and a fixed tree; the root and the division are
    correctly rounded.

    Args:
        x: (..., n).
        w: (n,).
        eps: added to the mean.
        isa, threads: as in `tree_gemm`.
    """
    x, w = _floats("x", x), _floats("w", w, 1)
    if x.shape[-1:] != w.shape:
        raise ValueError(f"x has shape {x.shape}, w {w.shape}: the last axes must agree")
    native, number = _choose(isa)
    if native is None:
        return portable.rms_norm(x, w, eps)
    out = np.empty_like(x)
    n = x.shape[-1]
    native.arm_rms_norm(
        number, _threads(threads), _address(x), _address(w), _address(out), x.size // n, n, eps
    )
    return out


def _elementwise(what: int, x: Floats, isa: str | None, threads: int | None) -> Floats:
    x = _floats("x", x)
    native, number = _choose(isa)
    if native is None:
        return (portable.silu if what == 0 else portable.exp)(x)
    out = np.empty_like(x)
    native.arm_elementwise(number, _threads(threads), what, _address(x), _address(out), x.size)
    return out


def silu(x: Floats, *, isa: str | None = None, threads: int | None = None) -> Floats:
    """x / (1 + exp(-x)), one polynomial for every element wherever it stands."""
    return _elementwise(0, x, isa, threads)


def exp(x: Floats, *, isa: str | None = None, threads: int | None = None) -> Floats:
    """exp(x) within two units in the last place, the same bits wherever an element stands."""
    return _elementwise(1, x, isa, threads)


def log_softmax(x: Floats, *, isa: str | None = None, threads: int | None = None) -> Floats:
    """x - log(sum(exp(x))) over the last axis; maximum and sum in sixteen fixed lanes."""
    x = _floats("x", x)
    native, number = _choose(isa)
    if native is None:
        return portable.log_softmax(x)
    out = np.empty_like(x)
    n = x.shape[-1]
    native.arm_log_softmax(number, _threads(threads), _address(x), _address(out), x.size // n, n)
    return out


def attention(
    q: NDArray[Any],
    k: NDArray[Any],
    v: NDArray[Any],
    *,
    scale: float,
    first: NDArray[np.int32] | None = None,
    kv_head: NDArray[np.int32] | None = None,
    window: int = 0,
    isa: str | None = None,
    threads: int | None = None,
) -> Floats:
    """Causal attention in which every query row is a computation of its own.

    The queries are the last of the keys. Keys are visited in blocks of 64 that start at the
    sequence's own first token, so that padding, chunks and a cache change nothing.

    Args:
        q: (batch, heads, queries, width), float32, or uint16 holding bfloat16 (then k and v too).
        k, v: (batch, key heads, keys, width); strides are free but for the last axis.
        scale: factor of the scores.
        first: (batch,) index of each sequence's own first token: padding on the left; negative if
            a cache has dropped keys.
        kv_head: (heads,) the key head that serves a head; None: shared evenly.
        window: a query sees so many keys at most, itself among them; 0: all.
        isa, threads: as in `tree_gemm`.

    Returns:
        (batch, queries, heads, width) float32; zero where a query precedes its sequence.
    """
    batch, heads, queries, width = q.shape
    keys = k.shape[2]
    if not (q.dtype == k.dtype == v.dtype) or q.dtype not in (np.float32, np.uint16):
        raise TypeError(
            f"q, k, v are {q.dtype}, {k.dtype}, {v.dtype}: give float32 or uint16 alike"
        )
    if k.shape != v.shape or k.shape[0] != batch or k.shape[3] != width or keys < queries:
        raise ValueError(f"q {q.shape}, k {k.shape}, v {v.shape} do not fit")
    start = np.zeros(batch, np.int32) if first is None else np.ascontiguousarray(first, np.int32)
    if kv_head is None:
        kv_head = np.arange(heads, dtype=np.int32) // np.int32(max(1, heads // k.shape[1]))
    served = np.ascontiguousarray(kv_head, np.int32)
    if start.shape != (batch,) or served.shape != (heads,) or served.max() >= k.shape[1]:
        raise ValueError(f"first {start.shape} or kv_head {served.tolist()} do not fit q and k")
    if width % 16:
        wider = [(0, 0)] * 3 + [(0, -width % 16)]
        padded = (np.pad(part, wider) for part in (q, k, v))
        return attention(
            *padded, scale=scale, first=start, kv_head=served, window=window, isa=isa,
            threads=threads,
        )[..., :width]  # fmt: skip
    if width > 512:
        raise ValueError(f"width {width}: at most 512")
    q, k, v = (
        part if part.strides[-1] == part.itemsize else np.ascontiguousarray(part)
        for part in (q, k, v)
    )
    native, number = _choose(isa)
    if native is None:
        return portable.attention(q, k, v, scale, start, served, window)
    out = np.empty((batch, queries, heads, width), np.float32)
    strides = np.array([s // p.itemsize for p in (q, k, v) for s in p.strides[:3]], np.int64)
    shape = np.array([batch, heads, queries, keys, width], np.int64)
    native.arm_attention(
        number, _threads(threads), _address(q), _address(k), _address(v), _address(out),
        _address(start), _address(served), _address(shape), _address(strides), window, scale,
        q.dtype == np.uint16,
    )  # fmt: skip
    return out


def combine(
    parts: list[Floats],
    merges: bytes,
    rounded: bytes | None = None,
    *,
    isa: str | None = None,
) -> Floats:
    """Finish a tree from its parts, element by element.

    Args:
        parts: arrays of one shape, from left to right.
        merges: (parts,) additions after each part.
        rounded: as in `tree_gemm`.
        isa: as in `tree_gemm`.
    """
    if not parts or len(merges) != len(parts) or sum(merges) != len(parts) - 1:
        raise ValueError(f"{len(parts)} parts and {len(merges)} merges are no tree")
    parts = [_floats("parts", part) for part in parts]
    if len({part.shape for part in parts}) != 1:
        raise ValueError(f"parts have shapes {[p.shape for p in parts]}: they must agree")
    native, number = _choose(isa)
    if native is None:
        return portable.combine(parts, merges, rounded)
    out = np.empty_like(parts[0])
    pointers = (ctypes.c_void_p * len(parts))(*(p.ctypes.data for p in parts))
    native.arm_combine(
        number, pointers, merges, rounded or None, len(parts), 0, out.size, _address(out)
    )
    return out
