"""Packed weights as torch modules: they hold b bits a weight and multiply without unpacking.

Up to `KERNEL_ROWS` tokens go through `armillary.native.quantised_gemm`, which reads the packed
words; more tokens, and other devices than the CPU, unpack one matrix at a time. Both are
differentiable in their input; the weights are constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from armillary import native
from armillary.serving.gemq.rtn import CHUNK, Coded, width_of

#: Above so many tokens it is quicker to unpack a matrix once.
KERNEL_ROWS = 48


class PackedMatrix(nn.Module):
    """A matrix (N, K) of 1 to 4 bits.

    Attributes:
        words: (panels, K / 32, bits, 16) int32; see `armillary.native`.
        scales: (panels, groups, 16) float16.
        zeros: the same, or None at one bit.
    """

    def __init__(self, columns: int, features: int, bits: int, group: int) -> None:
        super().__init__()
        self.columns, self.features = columns, features
        self.bits, self.group = width_of(features, bits), group
        self.padded = -(-features // CHUNK) * CHUNK
        self._seen: tuple[int, native.Quantised] | None = None
        panels, groups = -(-columns // 16), -(-self.padded // group)
        shape = (panels, self.padded // 32, self.bits, 16)
        self.words = _constant(torch.zeros(shape, dtype=torch.int32))
        empty = torch.zeros((panels, groups, 16), dtype=torch.float16)
        self.scales = _constant(empty)
        self.zeros = None if self.bits == 1 else _constant(empty.clone())

    @staticmethod
    def of(coded: Coded, features: int) -> PackedMatrix:
        """Pack a quantised matrix whose features may be padded."""
        columns = coded.codes.shape[0]
        matrix = PackedMatrix(columns, features, coded.bits, coded.group)
        zeros = None if coded.zeros is None else coded.zeros.numpy()
        packed = native.quantised_pack(
            coded.codes.numpy(), coded.scales.numpy(), zeros, bits=coded.bits, group=coded.group
        )
        matrix.words.data = torch.from_numpy(packed.words.view(np.int32))
        matrix.scales.data = torch.from_numpy(packed.scales)
        if matrix.zeros is not None and packed.zeros is not None:
            matrix.zeros.data = torch.from_numpy(packed.zeros)
        return matrix

    @property
    def nbytes(self) -> int:
        return sum(p.numel() * p.element_size() for p in self.parameters())

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> PackedMatrix:
        """Move to a device, but keep the types: scales stay in half precision."""

        def kept(t: Tensor) -> Tensor:
            if t.dtype == torch.float16:
                return fn(t.view(torch.int16)).view(torch.float16)
            return fn(t)

        return super()._apply(kept, recurse)

    def view(self) -> native.Quantised:
        """The packed arrays as numpy sees them, without a copy (on the CPU)."""
        where = self.words.data_ptr()
        if self._seen is None or self._seen[0] != where:
            found = native.Quantised(
                self.words.detach().numpy().view(np.uint32),
                self.scales.detach().numpy(),
                None if self.zeros is None else self.zeros.detach().numpy(),
                self.bits,
                self.columns,
                self.padded,
                self.group,
            )
            self._seen = where, found
        return self._seen[1]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_seen": None}  # a copy looks at its own arrays

    def dequantised(self) -> Tensor:
        """(N, K) float32."""
        codes = _codes(self.words, self.bits)[: self.columns]
        coded = codes.unflatten(1, (-1, self.group)).float()
        if self.bits == 1:
            coded = 2 * coded - 1
        if self.zeros is not None:
            coded = coded - _by_column(self.zeros, self.columns)[..., None]
        return (coded * _by_column(self.scales, self.columns)[..., None]).flatten(1)[
            :, : self.features
        ]

    def forward(self, x: Tensor) -> Tensor:
        """x W^T for x (..., K), in x's type."""
        if torch.is_grad_enabled() and x.requires_grad:
            return _Product.apply(x, self)
        return self.product(x)

    def product(self, x: Tensor) -> Tensor:
        flat = x.detach().reshape(-1, self.features).float()
        if x.device.type == "cpu" and len(flat) <= KERNEL_ROWS:
            if self.padded != self.features:
                flat = nn.functional.pad(flat, (0, self.padded - self.features))
            rows = np.ascontiguousarray(flat.numpy())
            found = native.quantised_gemm(rows, self.view(), threads=torch.get_num_threads())
            out = torch.from_numpy(found)
        else:
            out = flat @ self.dequantised().T
        return out.to(x.dtype).reshape(*x.shape[:-1], self.columns)

    def extra_repr(self) -> str:
        return f"{self.columns}, {self.features}, bits={self.bits}, group={self.group}"


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: PackedMatrix) -> Tensor:
        ctx.matrix = matrix
        return matrix.product(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (grad,) = grads
        return (grad.float() @ ctx.matrix.dequantised()).to(grad.dtype), None


class PackedLinear(nn.Module):
    """A linear layer whose weights are packed."""

    def __init__(self, columns: int, features: int, bits: int, group: int, bias: bool) -> None:
        super().__init__()
        self.matrix = PackedMatrix(columns, features, bits, group)
        self.bias = nn.Parameter(torch.zeros(columns), requires_grad=False) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        y = self.matrix(x)
        return y if self.bias is None else y + self.bias.to(y.dtype)


class PackedExperts(nn.Module):
    """The experts of a layer, each at its own width, called as transformers calls its own.

    Args:
        bits: a width an expert.
        hidden, intermediate: H and I.
        act_fn: between gate and up.
    """

    def __init__(
        self, bits: Sequence[int], hidden: int, intermediate: int, group: int, act_fn: Any
    ) -> None:
        super().__init__()
        self.num_experts, self.act_fn = len(bits), act_fn
        self.gate_up = nn.ModuleList(PackedMatrix(2 * intermediate, hidden, b, group) for b in bits)
        self.down = nn.ModuleList(PackedMatrix(hidden, intermediate, b, group) for b in bits)

    @property
    def nbytes(self) -> int:
        return sum(p.numel() * p.element_size() for p in self.parameters())

    def forward(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        """(T, H) tokens, (T, k) indices and weights -> (T, H)."""
        if self._quick(hidden_states):
            return self._few(hidden_states, top_k_index, top_k_weights)
        out = torch.zeros_like(hidden_states)
        index = top_k_index.detach()
        for e in sorted(set(index.flatten().tolist())):
            if e >= self.num_experts:
                continue
            token, place = torch.where(index == e)
            gate, up = self.gate_up[e](hidden_states[token]).chunk(2, dim=-1)
            found = self.down[e](self.act_fn(gate) * up) * top_k_weights[token, place, None]
            out = out.index_add(0, token, found.to(out.dtype))
        return out

    def _quick(self, x: Tensor) -> bool:
        """Whether few tokens go through the kernels, with nothing of torch in between."""
        return (
            len(x) <= KERNEL_ROWS
            and x.device.type == "cpu"
            and not (torch.is_grad_enabled() and x.requires_grad)
            and isinstance(self.act_fn, nn.SiLU)
        )

    def _few(self, x: Tensor, index: Tensor, weights: Tensor) -> Tensor:
        threads = torch.get_num_threads()
        rows, chosen = x.detach().float().numpy(), index.numpy()
        share = weights.detach().float().numpy()
        out = np.zeros_like(rows)
        for e in sorted(set(chosen.ravel().tolist())):
            if e >= self.num_experts:
                continue
            token, place = (chosen == e).nonzero()
            first: Any = self.gate_up[e]
            last: Any = self.down[e]
            both = native.quantised_gemm(_wide(rows[token], first), first.view(), threads=threads)
            inner = both.shape[1] // 2
            middle = native.silu(np.ascontiguousarray(both[:, :inner])) * both[:, inner:]
            found = native.quantised_gemm(_wide(middle, last), last.view(), threads=threads)
            out[token] += found * share[token, place][:, None]
        return torch.from_numpy(out).to(x.dtype)


def _wide(rows: Any, matrix: PackedMatrix) -> Any:
    """Rows with zeros up to the features that a padded matrix has."""
    if matrix.padded == matrix.features:
        return rows
    return np.pad(rows, ((0, 0), (0, matrix.padded - matrix.features)))


def _constant(t: Tensor) -> nn.Parameter:
    return nn.Parameter(t, requires_grad=False)


def _by_column(panels: Tensor, columns: int) -> Tensor:
    return panels.float().transpose(1, 2).flatten(0, 1)[:columns]


def _codes(words: Tensor, bits: int) -> Tensor:
    """(columns up to a multiple of 16, K) codes as int32."""
    if bits == 3:
        low, high = _fields(words[:, :, :2], 2), _fields(words[:, :, 2:], 1)
        return low | (high << 2)
    return _fields(words, bits)


def _fields(words: Tensor, bits: int) -> Tensor:
    shifts = torch.arange(0, 32, bits, dtype=torch.int32, device=words.device)
    fields = (words[..., None] >> shifts) & ((1 << bits) - 1)  # (panels, chunks, words, 16, each)
    return fields.permute(0, 3, 1, 2, 4).flatten(2).flatten(0, 1)
