"""The kernels in numpy: the same operations in the same order, and so the same bits, slowly.

A fused multiply-add rounds once. The product of two float32 is exact in float64; its sum with a
third is rounded there to odd (the last bit is set where anything was cut off), and that survives
the second rounding to float32 (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums",
IEEE Transactions on Computers 57, 2008).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

CANONICAL_NAN = np.uint32(0x7FC00000)
LANES = 16
KEYS = 64


def fma(a: Any, b: Any, c: Any) -> Floats:
    """a b + c in float32, rounded once."""
    with np.errstate(all="ignore"):
        product = np.asarray(a, np.float64) * np.asarray(b, np.float64)
        addend = np.asarray(c, np.float64)
        total = product + addend
        back = total - product
        cut_off = (product - (total - back)) + (addend - back)
        bits = np.asarray(total).view(np.int64)
        inexact = (cut_off != 0) & np.isfinite(total) & ((bits & 1) == 0)
        # Towards what was cut off: up in magnitude where the signs agree, else down.
        step = np.where((cut_off > 0) == (total > 0), 1, -1)
        odd = np.where(inexact, bits + step, bits).view(np.float64)
        return odd.astype(np.float32)


def canonical(x: NDArray[Any]) -> Floats:
    """NaN as the one quiet NaN."""
    return np.where(np.isnan(x), CANONICAL_NAN.view(np.float32), x).astype(np.float32)


def to_bf16(x: Floats) -> Floats:
    """Rounded to bfloat16, ties to even."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    up = bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))
    return canonical(np.where(np.isnan(x), x, (up & np.uint32(0xFFFF0000)).view(np.float32)))


def run(parts: list[Floats], merges: bytes, rounded: bytes | None) -> Floats:
    """The stack machine of a tree."""
    stack: list[Floats] = []
    flags = iter(rounded or bytes(2 * len(merges)))
    for part, count in zip(parts, merges, strict=True):
        value = to_bf16(part) if next(flags) else part
        for _ in range(count):
            with np.errstate(all="ignore"):
                value = stack.pop() + value
            if next(flags):
                value = to_bf16(value)
        stack.append(value)
    return stack[0]


def tree_gemm(
    x: Floats, w: Floats, leaf: int, merges: bytes, rounded: bytes | None, bias: Floats | None
) -> Floats:
    """x w^T; x is (rows, k), w (columns, k)."""
    leaves = []
    for first in range(0, x.shape[1], leaf):
        value = np.zeros((len(x), len(w)), np.float32)
        for k in range(first, min(first + leaf, x.shape[1])):
            value = fma(x[:, k, None], w[None, :, k], value)
        leaves.append(value)
    with np.errstate(all="ignore"):
        total = run(leaves, merges, rounded)
        return canonical(total if bias is None else total + bias)


def combine(parts: list[Floats], merges: bytes, rounded: bytes | None) -> Floats:
    """The tree over parts."""
    return canonical(run(parts, merges, rounded))


def lanes(x: Floats, fill: float = 0.0) -> Floats:
    """(..., n) as (..., chunks, 16), the last chunk filled up."""
    n = x.shape[-1]
    padded = np.full((*x.shape[:-1], -(-n // LANES) * LANES), fill, np.float32)
    padded[..., :n] = x
    return padded.reshape(*x.shape[:-1], -1, LANES)


def tree_sum(x: Floats) -> Floats:
    """(..., 16) to (...): i with i + 8, then + 4, + 2, + 1."""
    with np.errstate(all="ignore"):
        width = 8
        while width:
            x = x[..., :width] + x[..., width : 2 * width]
            width //= 2
    return x[..., 0]


def greater(a: Floats, b: Floats) -> Floats:
    """a where a > b, else b (also where either is NaN)."""
    with np.errstate(all="ignore"):
        return np.where(a > b, a, b).astype(np.float32)


def tree_max(x: Floats) -> Floats:
    """(..., 16) to (...), in the tree of `tree_sum`."""
    width = 8
    while width:
        x = greater(x[..., :width], x[..., width : 2 * width])
        width //= 2
    return x[..., 0]


def exp(x: NDArray[Any]) -> Floats:
    """exp, by one polynomial (Cephes' coefficients of degree five)."""
    f = np.float32
    with np.errstate(all="ignore"):
        bounded = greater(x, np.full_like(x, -150.0))
        bounded = np.where(bounded < f(89.0), bounded, f(89.0)).astype(np.float32)
        n = np.rint(bounded * f(1.44269504))
        r = fma(n, f(-0.693359375), bounded)
        r = fma(n, f(2.12194440e-4), r)
        p = np.full_like(x, f(1.9875691500e-4))
        for c in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1,
                  5.0000001201e-1):  # fmt: skip
            p = fma(p, r, f(c))
        p = fma(p, r * r, r) + f(1.0)
        half = np.rint(n * f(0.5))
        p = p * _power_of_two(half) * _power_of_two(n - half)
        p = np.where(x < f(-104.0), f(0.0), p).astype(np.float32)
        return canonical(np.where(np.isnan(x), x, p).astype(np.float32))


def _power_of_two(n: Floats) -> Floats:
    return ((n.astype(np.int32) + 127) << 23).astype(np.int32).view(np.float32)


def silu(x: Floats) -> Floats:
    """x / (1 + exp(-x))."""
    with np.errstate(all="ignore"):
        return canonical(x / (np.float32(1.0) + exp(np.float32(0.0) - x)))


def rms_norm(x: Floats, w: Floats, eps: float) -> Floats:
    """Each row over the root of its mean square, times w."""
    chunks = lanes(x)
    squares = np.zeros((*x.shape[:-1], LANES), np.float32)
    for i in range(chunks.shape[-2]):
        squares = fma(chunks[..., i, :], chunks[..., i, :], squares)
    with np.errstate(all="ignore"):
        mean = tree_sum(squares) / np.float32(x.shape[-1])
        scale = np.float32(1.0) / np.sqrt(mean + np.float32(eps))
        return canonical(x * scale[..., None] * w)


def logarithm(x: Doubles) -> Doubles:
    """log of float64 by plain additions, multiplications and divisions."""
    bits = np.asarray(x, np.float64).view(np.int64)
    exponent = (bits >> 52) - 1023
    m = ((bits & 0x000FFFFFFFFFFFFF) | 0x3FF0000000000000).view(np.float64)
    large = m > 1.4142135623730951
    m = np.where(large, m * 0.5, m)
    exponent = exponent + large
    s = (m - 1.0) / (m + 1.0)
    s2 = s * s
    p = np.zeros_like(s)
    for i in range(25, 0, -2):
        p = p * s2 + 1.0 / i
    return exponent * 0.6931471805599453 + 2.0 * (s * p)


def log_softmax(x: Floats) -> Floats:
    """Over the last axis."""
    n = x.shape[-1]
    chunks = lanes(x, -np.inf)
    most = np.full((*x.shape[:-1], LANES), -np.inf, np.float32)
    for i in range(chunks.shape[-2]):
        most = greater(chunks[..., i, :], most)
    top = tree_max(most)[..., None]
    with np.errstate(all="ignore"):
        parts = lanes(exp(x - top))
        total = np.zeros_like(most)
        for i in range(parts.shape[-2]):
            total = total + parts[..., i, :]
        whole = tree_sum(total)
        whole = np.where(np.isnan(x).any(-1), np.float32(np.nan), whole)
        norm = np.where(np.isnan(whole), whole, logarithm(whole.astype(np.float64)))
        assert n == x.shape[-1]
        return canonical((x - top) - norm.astype(np.float32)[..., None])


def widened(x: NDArray[Any]) -> Floats:
    """bfloat16 held in uint16 as float32; float32 as it is."""
    if x.dtype == np.uint16:
        return (x.astype(np.uint32) << 16).view(np.float32)
    return np.asarray(x, np.float32)


def attention(
    q: NDArray[Any], k: NDArray[Any], v: NDArray[Any], scale: float, first: NDArray[np.int32],
    kv_head: NDArray[np.int32], window: int,
) -> Floats:  # fmt: skip
    """(batch, heads, queries, width) to (batch, queries, heads, width)."""
    q, k, v = widened(q), widened(k), widened(v)
    batch, heads, queries, width = q.shape
    out = np.zeros((batch, queries, heads, width), np.float32)
    for b in range(batch):
        for h in range(heads):
            for t in range(queries):
                last = k.shape[2] - queries + t
                start = int(first[b])
                seen = max(start, last - window + 1, 0) if window else max(start, 0)
                if last >= start:
                    keys, values = k[b, kv_head[h]], v[b, kv_head[h]]
                    out[b, t, h] = _query_row(q[b, h, t], keys, values, scale, start, seen, last)
    return out


def _query_row(
    q: Floats, keys: Floats, values: Floats, scale: float, start: int, seen: int, last: int
) -> Floats:
    top, total = np.float32(-np.inf), np.float32(0.0)
    out = np.zeros(len(q), np.float32)
    row = lanes(q)
    with np.errstate(all="ignore"):
        for j0 in range(start + (seen - start) // KEYS * KEYS, last + 1, KEYS):
            js = np.arange(max(j0, seen), min(j0 + KEYS, last + 1))
            dots = np.zeros((len(js), LANES), np.float32)
            for c in range(len(row)):
                dots = fma(row[c], lanes(keys[js])[:, c], dots)
            score = np.full(KEYS, -np.inf, np.float32)
            score[js - j0] = tree_sum(dots) * np.float32(scale)
            most = np.full(LANES, top, np.float32)
            for chunk in lanes(score):
                most = greater(chunk, most)
            top_before, top = top, tree_max(most)
            shift = np.float32(0.0) if top == -np.inf else top
            old = exp(np.array([top_before - shift], np.float32))[0]
            weights = exp(score - shift)
            weight = np.zeros(LANES, np.float32)
            for chunk in lanes(weights):
                weight = weight + chunk
            if np.isnan(score).any():
                weight = weight * np.float32(np.nan)
            total = total * old + tree_sum(weight)
            out = out * old
            for j in js:
                out = fma(weights[j - j0], values[j], out)
        return canonical(np.zeros_like(out) if total == 0 else out / total)


# ---- weights of 1 to 4 bits ---------------------------------------------------------------------


def quantised_words(codes: NDArray[np.uint8], bits: int) -> NDArray[np.uint32]:
    """Codes (columns, features) as words (panels, features / 32, bits, 16); see quantised.inc."""
    columns, features = codes.shape
    panels = -(-columns // LANES)
    wide = np.zeros((panels * LANES, features), np.uint32)
    wide[:columns] = codes
    chunks = wide.reshape(panels, LANES, features // 32, 32).transpose(0, 2, 3, 1)
    words = np.zeros((panels, features // 32, bits, LANES), np.uint32)
    for first_bit, part, count in _planes(bits):
        each = 32 // part
        for i in range(32):
            field = (chunks[:, :, i] >> first_bit) & ((1 << part) - 1)
            words[:, :, count + i // each] |= field << (part * (i % each))
    return words


def quantised_codes(words: NDArray[np.uint32], bits: int) -> NDArray[np.uint8]:
    """The codes (columns up to a multiple of 16, features) of packed words."""
    panels, count, _, lanes = words.shape
    codes = np.zeros((panels, count, 32, lanes), np.uint8)
    for first_bit, part, first_word in _planes(bits):
        each = 32 // part
        for i in range(32):
            word = words[:, :, first_word + i // each]
            field = (word >> (part * (i % each))) & ((1 << part) - 1)
            codes[:, :, i] |= (field << first_bit).astype(np.uint8)
    return np.ascontiguousarray(codes.transpose(0, 3, 1, 2).reshape(panels * lanes, count * 32))


def _planes(bits: int) -> tuple[tuple[int, int, int], ...]:
    """(lowest bit, bits, first word) of a code's fields: three bits are two and one."""
    return ((0, 2, 0), (2, 1, 2)) if bits == 3 else ((0, bits, 0),)


def quantised_gemm(
    x: Floats,
    codes: NDArray[np.uint8],
    scales: NDArray[np.float16],
    zeros: NDArray[np.float16] | None,
    bits: int,
    group: int,
) -> Floats:
    """x w^T for codes (columns, features), scales and zeros (columns, groups)."""
    value = 2 * codes.astype(np.float32) - 1 if bits == 1 else codes.astype(np.float32)
    total = np.zeros((len(x), len(codes)), np.float32)
    for g, first in enumerate(range(0, x.shape[1], group)):
        acc, inputs = np.zeros_like(total), np.zeros(len(x), np.float32)
        for k in range(first, min(first + group, x.shape[1])):
            acc = fma(x[:, k, None], value[None, :, k], acc)
            with np.errstate(all="ignore"):
                inputs = inputs + x[:, k]
        if zeros is not None:
            acc = fma(-zeros[None, :, g].astype(np.float32), inputs[:, None], acc)
        total = fma(scales[None, :, g].astype(np.float32), acc, total)
    return canonical(total)
