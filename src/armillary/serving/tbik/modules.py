"""Layers of a language model whose outputs do not depend on batch, padding, chunks or ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from armillary.serving.tbik import ops
from armillary.serving.tbik.dist import Alone, Exchange
from armillary.serving.tbik.plan import TreePlan

POSITIONS = 256


class TreeLinear(nn.Module):
    """A linear layer, or one rank's part of it, on the tree product.

    As it is (one rank) it learns: the gradient goes through the same kernel. A part that is cut
    along the features (``plan`` of several ranks) or the columns (``sizes``) is for inference.

    Args:
        weight: (N, K), or the rank's rows (``sizes``) or columns (``plan``) of it.
        bias: (N,) or None; of a layer cut along the features it is the whole bias.
        plan: how the sum over K is cut among ranks.
        sizes: columns of every rank, if the output is to be gathered.
        exchange: how ranks talk.
        leaf: features of a leaf.
        packed_dtype: float32 or bfloat16 for the packed copy; None: as the weight.
    """

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None = None,
        *,
        plan: TreePlan | None = None,
        sizes: Sequence[int] = (),
        exchange: Exchange | None = None,
        leaf: int = ops.LEAF,
        packed_dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.weight = weight if isinstance(weight, nn.Parameter) else nn.Parameter(weight)
        self.bias = bias if bias is None or isinstance(bias, nn.Parameter) else nn.Parameter(bias)
        self.plan, self.sizes, self.leaf = plan, tuple(sizes), leaf
        self.exchange = exchange or Alone()
        self.packed_dtype = packed_dtype
        self._packed: tuple[Any, ops.PackedWeight] | None = None

    @property
    def in_features(self) -> int:
        """Features that this rank holds."""
        return self.weight.shape[1]

    @property
    def out_features(self) -> int:
        """Columns that this rank holds."""
        return self.weight.shape[0]

    def packed(self) -> ops.PackedWeight:
        """The panels of the weight, made again when it has changed."""
        state = (self.weight.data_ptr(), self.weight._version, self.weight.dtype)
        if self._packed is None or self._packed[0] != state:
            self._packed = state, ops.pack(self.weight, self.packed_dtype)
        return self._packed[1]

    def forward(self, x: Tensor) -> Tensor:
        """(..., K) to (..., N), on every rank."""
        cut = self.exchange.world > 1 and (self.plan is not None or bool(self.sizes))
        if ops.wants_operator(x, self.weight, self.bias):
            if cut:
                raise RuntimeError(
                    "a layer cut among ranks has no gradient: train on one rank (whose bits are "
                    "the same), or call this one under torch.no_grad()"
                )
            return ops.tree_linear(x, self.weight, leaf=self.leaf, bias=self.bias)
        if self.plan is not None and self.exchange.world > 1:
            return self._along_features(x, self.plan)
        y = ops.tree_linear(x, self.packed(), leaf=self.leaf, bias=self.bias)
        if not (cut and self.sizes):
            return y
        flat = self.exchange.gather(y.reshape(-1, y.shape[-1]), self.sizes)
        return flat.reshape(*y.shape[:-1], -1)

    def _along_features(self, x: Tensor, plan: TreePlan) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        parts = ops.tree_parts(flat, self.packed(), plan, self.exchange.rank)
        y = self.exchange.reduce(parts, plan)
        if self.bias is not None:
            y = y + self.bias.float()
        return y.to(x.dtype).reshape(*x.shape[:-1], -1)

    def extra_repr(self) -> str:
        """For printing."""
        return f"in={self.in_features}, out={self.out_features}, leaf={self.leaf}"


class InvariantRMSNorm(nn.Module):
    """RMS norm in sixteen fixed lanes; replaces the RMSNorm classes of transformers."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        super().__init__()
        self.weight = weight if isinstance(weight, nn.Parameter) else nn.Parameter(weight)
        self.variance_epsilon = eps

    def forward(self, hidden_states: Tensor) -> Tensor:
        """(..., n) to (..., n)."""
        return ops.rms_norm(hidden_states, self.weight, self.variance_epsilon)


class InvariantSiLU(nn.Module):
    """x / (1 + exp(-x)) by one polynomial for every element."""

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return ops.silu(x)


class RotaryTable(nn.Module):
    """cos and sin of each absolute position, computed once in float64, one by one, and rounded.

    Args:
        inv_freq: (width / 2,) frequencies.
        scaling: factor of cos and sin.
    """

    def __init__(self, inv_freq: Tensor, scaling: float) -> None:
        super().__init__()
        self._frequencies = [float(f) for f in inv_freq.double()]
        self._scaling = float(scaling)
        self.register_buffer("cos", torch.empty(0, 2 * len(inv_freq)), persistent=False)
        self.register_buffer("sin", torch.empty(0, 2 * len(inv_freq)), persistent=False)

    def _grow(self, positions: int) -> None:
        cos, sin = [self.cos], [self.sin]
        while (start := sum(len(c) for c in cos)) < positions:
            angles = [
                [p * f for f in self._frequencies] * 2 for p in range(start, start + POSITIONS)
            ]
            for table, function in ((cos, math.cos), (sin, math.sin)):
                values = [[function(a) * self._scaling for a in row] for row in angles]
                table.append(torch.tensor(values, dtype=torch.float64).float())
        self.cos, self.sin = torch.cat(cos), torch.cat(sin)

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin (batch, tokens, width) in the type of x."""
        last = int(position_ids.max()) + 1 if position_ids.numel() else 0
        if last > len(self.cos):
            self._grow(last)
        return self.cos[position_ids].to(x.dtype), self.sin[position_ids].to(x.dtype)
