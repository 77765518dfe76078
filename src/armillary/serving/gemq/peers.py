"""Quantisers of other packages, in the form that is packed here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from armillary.errors import require
from armillary.serving.gemq.gptq import padded
from armillary.serving.gemq.rtn import Coded, width_of

if TYPE_CHECKING:
    from torch import Tensor


def half_quadratic(w: Tensor, bits: int, group: int) -> Coded:
    """HQQ (Badri and Shaji, 2023) by the package hqq, its own settings, scales kept in 16 bits.

    Args:
        w: (N, K).
        bits: 2, 3 or 4.
        group: features that share a scale.

    Raises:
        ValueError: one bit: HQQ's codes have a zero there, the packed form has none.
        MissingExtra: hqq is not installed.
    """
    import torch

    if width_of(w.shape[-1], bits) == 1:
        raise ValueError("quantizer='hqq' has no one-bit form here: plan with widths from 2 on")
    core: Any = require("hqq.core.quantize", what="gemq", extra="serving-peers")
    full = padded(w).float()
    columns, features = full.shape
    codes, about = core.Quantizer.quantize(
        full, nbits=width_of(w.shape[-1], bits), channel_wise=True, group_size=group,
        optimize=True, round_zero=False, axis=1, bitpack=False, compute_dtype=torch.float32,
        device="cpu",
    )  # fmt: skip
    groups = features // group
    return Coded(
        codes.reshape(columns, features).to(torch.uint8),
        about["scale"].reshape(columns, groups).to(torch.float16),
        about["zero"].reshape(columns, groups).to(torch.float16),
        width_of(w.shape[-1], bits),
        group,
    )
