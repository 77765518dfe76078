"""The tree product for GPUs, in Triton: one tile for every number of rows, float32 partial sums.

A leaf is one matrix instruction's worth of features (128 of float32, 256 of bfloat16), so that its
bits are those of that GPU, not of the CPU's leaves; the tree over leaves is that of `TreePlan`.
Tiles never depend on the number of rows or columns, and no product is split along K by load.

It runs in Triton's interpreter without a GPU (``TRITON_INTERPRET=1``), where tests compare it with
the plan; ``scripts/gpu_check.sh`` runs it on a GPU.
"""

from __future__ import annotations

import torch
import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]
from torch import Tensor

#: Rows and columns of a tile, for every shape.
TILE = 32
LEAVES = {torch.float32: 128, torch.bfloat16: 256, torch.float16: 256}


@triton.jit
def _leaf(x, w, m, n, rows, columns, k_all, index, LEAF: tl.constexpr):
    k = index * LEAF + tl.arange(0, LEAF)
    a = tl.load(
        x + m[:, None] * k_all + k[None, :],
        mask=(m[:, None] < rows) & (k[None, :] < k_all), other=0.0,
    )  # fmt: skip
    b = tl.load(
        w + n[None, :] * k_all + k[:, None],
        mask=(n[None, :] < columns) & (k[:, None] < k_all), other=0.0,
    )  # fmt: skip
    return tl.dot(a, b, input_precision="ieee", out_dtype=tl.float32)


@triton.jit
def _kernel(x, w, y, rows, columns, k_all, leaves, merges, stack, LEAF: tl.constexpr,
            TILE: tl.constexpr, DEPTH: tl.constexpr):  # fmt: skip
    """One tile: leaves in order; finished ones wait on a stack in memory of this tile alone."""
    tile = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    r = tl.arange(0, TILE)
    m = tl.program_id(0) * TILE + r
    n = tl.program_id(1) * TILE + r
    place = stack + tile * DEPTH * TILE * TILE + r[:, None] * TILE + r[None, :]
    height = 0
    for index in range(leaves):
        value = _leaf(x, w, m, n, rows, columns, k_all, index, LEAF)
        for _ in range(tl.load(merges + index)):
            height -= 1
            value = tl.load(place + height * TILE * TILE) + value
        tl.store(place + height * TILE * TILE, value)
        height += 1
    total = tl.load(place)
    tl.store(
        y + m[:, None] * columns + n[None, :], total,
        mask=(m[:, None] < rows) & (n[None, :] < columns),
    )  # fmt: skip


def tree_linear(x: Tensor, w: Tensor, leaf: int | None = None) -> Tensor:
    """y = x w^T with leaves by matrix instructions and the tree of `TreePlan`.

    Args:
        x: (rows, K) on a GPU (or anywhere in the interpreter), contiguous.
        w: (N, K), in the type of x.
        leaf: features of a leaf, a power of two from 16; None: 128 for float32, 256 for 16 bits.

    Returns:
        (rows, N) float32.

    Raises:
        ValueError: shapes or a leaf that do not fit.
        TypeError: types that differ or are not taken.
    """
    from armillary.serving.tbik.plan import TreePlan

    if x.dtype != w.dtype or x.dtype not in LEAVES:
        raise TypeError(f"x is {x.dtype}, w {w.dtype}: give both in float32, bfloat16 or float16")
    if x.dim() != 2 or w.dim() != 2 or x.shape[1] != w.shape[1]:
        raise ValueError(f"x {tuple(x.shape)} and w {tuple(w.shape)}: (rows, K) and (N, K) needed")
    size = leaf or LEAVES[x.dtype]
    if size < 16 or size & (size - 1):
        raise ValueError(f"leaf={size}: a power of two from 16 is needed")
    x, w = x.contiguous(), w.contiguous()
    (rows, k), columns = x.shape, len(w)
    plan = TreePlan(k, size)
    program = plan.subtree((0, plan.leaves)).merges
    merges = torch.tensor(list(program), dtype=torch.int32, device=x.device)
    depth = plan.leaves.bit_length() + 1
    grid = (triton.cdiv(rows, TILE), triton.cdiv(columns, TILE))
    shape = (grid[0] * grid[1], depth, TILE, TILE)
    stack = torch.empty(shape, dtype=torch.float32, device=x.device)
    y = torch.empty(rows, columns, dtype=torch.float32, device=x.device)
    _kernel[grid](
        x, w, y, rows, columns, k, plan.leaves, merges, stack, LEAF=size, TILE=TILE, DEPTH=depth
    )
    return y
