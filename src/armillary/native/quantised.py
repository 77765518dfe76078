"""Products with weights of 1 to 4 bits, on the compiled library or on the portable path.

Weights are ``scale * (code - zero)`` a group of features, codes 0 ... 2^b - 1; with one bit the
codes mean -1 and +1 and there is no zero. Memory holds exactly b bits a weight, and 16 bits a group
for each scale and each zero.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.native import portable
from armillary.native.kernels import Floats, _address, _choose, _floats, _threads

#: Columns of a panel, and features of a chunk of packed words.
PANEL, CHUNK = 16, 32
WIDTHS = (1, 2, 3, 4)


@dataclasses.dataclass(frozen=True)
class Quantised:
    """Weights (columns, features) of few bits, as `quantised_gemm` reads them.

    Attributes:
        words: (panels, features / 32, bits, 16) uint32.
        scales: (panels, groups, 16) float16; 0 in columns past the end.
        zeros: the same, or None (at one bit).
        bits: 1, 2, 3 or 4.
        columns: how many there are.
        features: a multiple of 32.
        group: features that share a scale; a multiple of 32. The last group may be shorter.
    """

    words: NDArray[np.uint32]
    scales: NDArray[np.float16]
    zeros: NDArray[np.float16] | None
    bits: int
    columns: int
    features: int
    group: int

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.words.nbytes + self.scales.nbytes + (0 if self.zeros is None else
                                                         self.zeros.nbytes)  # fmt: skip

    def codes(self) -> NDArray[np.uint8]:
        """(columns, features)."""
        return portable.quantised_codes(self.words, self.bits)[: self.columns]

    def parameters(self) -> tuple[NDArray[np.float16], NDArray[np.float16] | None]:
        """Scales and zeros as (columns, groups)."""
        return _by_column(self.scales, self.columns), (
            None if self.zeros is None else _by_column(self.zeros, self.columns)
        )

    def dequantised(self) -> Floats:
        """(columns, features) float32: ``scale * (code - zero)``."""
        scales, zeros = self.parameters()
        return dequantise(self.codes(), scales, zeros, self.bits, self.group)


def _by_column(panels: NDArray[Any], columns: int) -> NDArray[Any]:
    return np.ascontiguousarray(panels.transpose(0, 2, 1).reshape(-1, panels.shape[1])[:columns])


def dequantise(
    codes: NDArray[np.uint8],
    scales: NDArray[np.float16],
    zeros: NDArray[np.float16] | None,
    bits: int,
    group: int,
) -> Floats:
    """Weights of codes (columns, features), scales and zeros (columns, groups), in float32."""
    value = codes.astype(np.float32)
    if bits == 1:
        value = 2 * value - 1
    where = np.arange(codes.shape[1]) // group
    if zeros is not None:
        value -= zeros.astype(np.float32)[:, where]
    return value * scales.astype(np.float32)[:, where]


def quantised_pack(
    codes: NDArray[np.uint8],
    scales: NDArray[np.float16],
    zeros: NDArray[np.float16] | None,
    *,
    bits: int,
    group: int,
) -> Quantised:
    """Arrange codes for `quantised_gemm`.

    Args:
        codes: (columns, features) below 2^bits.
        scales: (columns, groups) float16, finite.
        zeros: the same; None: none.
        bits: 1, 2, 3 or 4.
        group: features of a group.

    Raises:
        ValueError: a width, group or shape that does not fit, or codes or scales out of range.
    """
    if bits not in WIDTHS:
        raise ValueError(f"bits={bits}: it must be 1, 2, 3 or 4")
    if codes.ndim != 2 or codes.shape[1] % CHUNK or group % CHUNK or group < CHUNK:
        raise ValueError(
            f"codes have shape {codes.shape}, group={group}: features and group must be "
            f"multiples of {CHUNK}"
        )
    columns, features = codes.shape
    groups = -(-features // group)
    for name, array in (("scales", scales), ("zeros", zeros)):
        if array is None:
            continue
        if array.shape != (columns, groups) or array.dtype != np.float16:
            raise ValueError(
                f"{name} is {array.dtype} {array.shape}: float16 ({columns}, {groups}) is needed"
            )
        if not np.isfinite(array).all():
            raise ValueError(f"{name} has values that are not finite")
    if codes.size and int(codes.max()) >= 1 << bits:
        raise ValueError(
            f"codes reach {int(codes.max())}: at {bits} bits {(1 << bits) - 1} is most"
        )
    panels = -(-columns // PANEL)

    def by_panel(array: NDArray[np.float16]) -> NDArray[np.float16]:
        wide = np.zeros((panels * PANEL, groups), np.float16)
        wide[:columns] = array
        return np.ascontiguousarray(wide.reshape(panels, PANEL, groups).transpose(0, 2, 1))

    return Quantised(
        portable.quantised_words(codes, bits),
        by_panel(scales),
        None if zeros is None else by_panel(zeros),
        bits, columns, features, group,
    )  # fmt: skip


def quantised_gemm(
    x: Floats,
    w: Quantised,
    *,
    out: Floats | None = None,
    isa: str | None = None,
    threads: int | None = None,
) -> Floats:
    """x w^T where w is dequantised in registers and never written to memory.

    One accumulator an output runs over a group by fused multiply-add; then the zero times the sum
    of the group's inputs is taken off, and the scale applied, once a group. No result depends on
    how many rows or columns there are, on threads, or on the instruction set.

    Args:
        x: (rows, features) float32.
        w: what `quantised_pack` gave.
        out: (rows, columns) to write into, C-contiguous.
        isa: scalar, avx2, avx512 or portable; None: the best.
        threads: at most so many; None: all cores.

    Returns:
        (rows, columns) float32.

    Raises:
        ValueError: shapes that do not fit.
    """
    x = _floats("x", x, 2)
    rows, features = x.shape
    if features != w.features:
        raise ValueError(f"x has {features} features, the weights {w.features}")
    native, number = _choose(isa)
    if out is None:
        out = np.empty((rows, w.columns), np.float32)
    elif out.shape != (rows, w.columns) or out.dtype != np.float32 or not out.flags.c_contiguous:
        raise ValueError(f"out must be C-contiguous float32 ({rows}, {w.columns})")
    if native is None:
        scales, zeros = w.parameters()
        out[:] = portable.quantised_gemm(x, w.codes(), scales, zeros, w.bits, w.group)
        return out
    native.arm_quantised_gemm(
        number, _threads(threads), _address(x), rows, features, _address(w.words),
        _address(w.scales), _address(w.zeros), w.bits, w.columns, w.group, _address(out),
    )  # fmt: skip
    return out
