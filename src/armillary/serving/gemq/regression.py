"""Ridge regression that shrinks towards a given start."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

RIDGE = 0.01


def ridge(x: Tensor, y: Tensor, start: Tensor, strength: float = RIDGE) -> Tensor:
    """argmin |x w - y|^2 + strength * mean diagonal of x^T x * |w - start|^2.

    Args:
        x: (T, K).
        y: (T, N).
        start: (K, N).
        strength: 0: least squares; infinite: the start.
    """
    import torch

    gram = (x.T @ x).double()
    gram.diagonal().add_(strength * gram.diagonal().mean() + 1e-12)
    rest = (x.T @ (y - x @ start)).double()
    return start + torch.cholesky_solve(rest, torch.linalg.cholesky(gram)).float()
