"""Quantisers without calibration, and what a width costs in bytes.

A matrix W (N, K) is cut into groups of ``group`` features. Above one bit a group is
``scale * (code - zero)`` with codes 0 ... 2^b - 1, from its least to its largest value, zero
included; at one bit it is ``scale * sign(w)`` with ``scale = mean |w|``. Scales and zeros are kept
in half precision, and codes are chosen against the scales as kept.

Shapes: N columns (outputs), K features (inputs), G groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

#: A matrix whose features no group divides is padded and held at this width.
PADDED_BITS = 4
CHUNK = 64


class Coded(NamedTuple):
    """A quantised matrix.

    Attributes:
        codes: (..., N, K) uint8.
        scales: (..., N, G) float16.
        zeros: (..., N, G) float16, or None at one bit.
        bits: 1, 2, 3 or 4.
        group: features of a group.
    """

    codes: Tensor
    scales: Tensor
    zeros: Tensor | None
    bits: int
    group: int

    def dequantised(self) -> Tensor:
        """(..., N, K) float32."""
        return decode(
            self.codes.unflatten(-1, (-1, self.group)),
            self.scales[..., None],
            None if self.zeros is None else self.zeros[..., None],
            self.bits,
        ).flatten(-2)


def decode(codes: Tensor, scales: Tensor, zeros: Tensor | None, bits: int) -> Tensor:
    """Weights of codes, in float32; the arguments broadcast."""
    value = codes.float()
    if bits == 1:
        value = 2 * value - 1
    if zeros is not None:
        value = value - zeros.float()
    return value * scales.float()


def encode(w: Tensor, scales: Tensor, zeros: Tensor | None, bits: int) -> Tensor:
    """The nearest codes of weights, as floats; the arguments broadcast."""
    if bits == 1:
        return (w >= 0).float()
    step = scales.float()
    scaled = (w / step.masked_fill(step == 0, 1)).masked_fill(step == 0, 0)
    if zeros is not None:
        scaled = scaled + zeros.float()
    return scaled.round().clamp_(0, (1 << bits) - 1)


def fit_grid(w: Tensor, bits: int, *, search: bool = False) -> tuple[Tensor, Tensor | None]:
    """Scales and zeros of groups.

    Args:
        w: (..., group) float32.
        bits: 1, 2, 3 or 4.
        search: shrink the range where that lowers the sum of squared errors (16 ranges from the
            full one to 0.4 of it).

    Returns:
        Scales and zeros (...,) float16; no zeros at one bit.
    """
    import torch

    if bits == 1:
        return w.abs().mean(-1).to(torch.float16), None
    low, high = w.amin(-1).clamp_max(0), w.amax(-1).clamp_min(0)
    if not search:
        return _grid(low, high, bits)
    best = best_scale = best_zero = None
    for step in range(16):
        shrink = 1 - 0.04 * step
        scale, zero = _grid(low * shrink, high * shrink, bits)
        codes = encode(w, scale[..., None], zero[..., None], bits)
        error = (decode(codes, scale[..., None], zero[..., None], bits) - w).square().sum(-1)
        if best is None or best_scale is None or best_zero is None:
            best, best_scale, best_zero = error, scale, zero
        else:
            better = error < best
            best = torch.where(better, error, best)
            best_scale = torch.where(better, scale, best_scale)
            best_zero = torch.where(better, zero, best_zero)
    assert best_scale is not None
    return best_scale, best_zero


def _grid(low: Tensor, high: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    import torch

    top = (1 << bits) - 1
    scale = ((high - low) / top).to(torch.float16)
    step = scale.float()
    zero = (-low / step.masked_fill(step == 0, 1)).masked_fill(step == 0, 0)
    return scale, zero.round().clamp(0, top).to(torch.float16)


def round_to_nearest(w: Tensor, bits: int, group: int, *, search: bool = False) -> Coded:
    """Quantise a matrix, each group by itself.

    Args:
        w: (..., N, K); K a multiple of ``group``.
        bits: 1, 2, 3 or 4.
        group: features that share a scale.
        search: as in `fit_grid`.
    """
    import torch

    groups = w.float().unflatten(-1, (-1, group))
    scales, zeros = fit_grid(groups, bits, search=search)
    codes = encode(groups, scales[..., None], None if zeros is None else zeros[..., None], bits)
    return Coded(codes.flatten(-2).to(torch.uint8), scales, zeros, bits, group)


def group_for(*features: int) -> int:
    """The group that the method uses: 128 where it divides every matrix's features, else 64."""
    return 128 if all(k % 128 == 0 for k in features) else 64


def width_of(features: int, bits: int) -> int:
    """The width that a matrix gets when its expert is given ``bits``."""
    return bits if features % CHUNK == 0 else PADDED_BITS


def matrix_bytes(columns: int, features: int, bits: int, group: int) -> int:
    """Bytes of a packed matrix: codes, a 16-bit scale a group, a 16-bit zero above one bit.

    Columns count up to the next multiple of 16, features up to the next multiple of 64.
    """
    bits = width_of(features, bits)
    columns, features = -(-columns // 16) * 16, -(-features // CHUNK) * CHUNK
    groups = -(-features // group)
    return columns * (features * bits // 8 + groups * (2 if bits == 1 else 4))


def expert_bytes(hidden: int, intermediate: int, bits: int, group: int) -> int:
    """Bytes of a gated expert: gate and up (2 I, H) and down (H, I)."""
    return matrix_bytes(2 * intermediate, hidden, bits, group) + matrix_bytes(
        hidden, intermediate, bits, group
    )
