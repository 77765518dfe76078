"""GPTQ with groups: round one feature after the other, and let later ones make up for it.

For a matrix W (N, K) and H = sum x x^T over its inputs, feature i is rounded and the error divided
by U[i, i] times U[i, i+1:] is taken off the features after it, U the upper Cholesky factor of
H^-1. A group's grid is fitted when its first feature is reached, on the weights as they are then.

Source: Frantar et al., "GPTQ", ICLR 2023 (arXiv 2210.17323); settings as GEMQ has them: damping
0.01 of the mean diagonal, ranges searched for least squared error. Several matrices with Hessians
of their own are rounded together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.serving.gemq.rtn import (
    CHUNK,
    Coded,
    decode,
    encode,
    fit_grid,
    round_to_nearest,
    width_of,
)

if TYPE_CHECKING:
    from torch import Tensor

DAMPING = 0.01
#: Share of the layer's Hessian that an expert with few tokens gets.
SHRINKAGE = 0.01


def padded(w: Tensor) -> Tensor:
    """A matrix (..., K) with zero features up to the next multiple of 64."""
    from torch.nn import functional

    extra = -w.shape[-1] % CHUNK
    return functional.pad(w, (0, extra)) if extra else w


def rounded(w: Tensor, bits: int, group: int, *, search: bool = False) -> Coded:
    """Round a matrix (..., N, K) to nearest; features that no group divides stay at 4 bits."""
    return round_to_nearest(padded(w), width_of(w.shape[-1], bits), group, search=search)


def gptq(w: Tensor, hessian: Tensor, bits: int, group: int, *, search: bool = True) -> Coded:
    """Round matrices by GPTQ.

    Args:
        w: (B, N, K) float32.
        hessian: (B, K, K), sums or means of x x^T: its scale does not matter.
        bits: 1, 2, 3 or 4; 4 where K is no multiple of 64.
        group: features that share a scale.
        search: look for the range of least squared error in each group.

    Returns:
        Codes (B, N, K up to a multiple of 64).
    """
    import torch

    bits = width_of(w.shape[-1], bits)
    work = padded(w).float().clone()
    features = work.shape[-1]
    extra = features - hessian.shape[-1]
    h = torch.nn.functional.pad(hessian.double(), (0, extra, 0, extra))
    diagonal = h.diagonal(dim1=-2, dim2=-1)
    dead = diagonal == 0
    diagonal += dead.double()  # in place: the diagonal is a view
    work.masked_fill_(dead[:, None, :], 0.0)
    diagonal += DAMPING * diagonal.mean(-1, keepdim=True)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(h))
    upper = torch.linalg.cholesky(inverse, upper=True).float()

    codes = torch.empty_like(work, dtype=torch.uint8)
    scales, zeros = [], []
    for first in range(0, features, group):
        last = min(first + group, features)
        block = work[..., first:last]
        scale, zero = fit_grid(block, bits, search=search)
        scales.append(scale)
        if zero is not None:
            zeros.append(zero)
        errors = torch.empty_like(block)
        for i in range(first, last):
            column = work[..., i]
            code = encode(column, scale, zero, bits)
            codes[..., i] = code.to(torch.uint8)
            error = (column - decode(code, scale, zero, bits)) / upper[:, i, i, None]
            errors[..., i - first] = error
            work[..., i:last] -= error[..., None] * upper[:, None, i, i:last]
        work[..., last:] -= errors @ upper[:, first:last, last:]
    return Coded(
        codes,
        torch.stack(scales, -1),
        torch.stack(zeros, -1) if zeros else None,
        bits,
        group,
    )
