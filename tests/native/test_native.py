"""The kernels: equal bits on every path, and values that are right."""

from __future__ import annotations

import math
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary import native
from armillary.native import library, portable

PATHS = ("portable", *native.instruction_sets())
MERGES = {1: b"\0", 2: b"\0\1", 3: b"\0\1\1", 4: b"\0\1\0\2", 5: b"\0\1\0\2\1"}


def bits(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x, np.float32).view(np.uint32)


def assert_equal_bits(a: np.ndarray, b: np.ndarray) -> None:
    np.testing.assert_array_equal(bits(a), bits(b))


def spread(seed: int, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=shape) * 10.0 ** rng.uniform(-6, 6, size=shape)).astype(np.float32)


def as_bf16(x: np.ndarray) -> np.ndarray:
    return (bits(x) >> 16).astype(np.uint16)


def test_the_library_is_built_and_has_the_plain_path():
    assert library.load() is not None
    assert "scalar" in native.instruction_sets()


finite = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(finite, finite, finite)
@settings(max_examples=300, deadline=None)
def test_portable_fma_rounds_once(a, b, c):
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    found = float(portable.fma(np.float32(a), np.float32(b), np.float32(c)))
    if math.isinf(found):
        assert abs(exact) > Fraction(float(np.finfo(np.float32).max))
        return
    # No neighbour is nearer to the exact value.
    error = abs(Fraction(found) - exact)
    for side in (-np.inf, np.inf):
        near = float(np.nextafter(np.float32(found), np.float32(side)))
        if math.isfinite(near):
            assert error <= abs(Fraction(near) - exact)


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize(
    ("rows", "columns", "k"), [(1, 70, 20), (3, 33, 37), (17, 40, 30), (2, 300, 8)]
)
def test_every_path_gives_the_same_bits(rows, columns, k, bf16):
    x, w, bias = spread(0, rows, k), spread(1, columns, k), spread(2, columns)
    packed = native.pack(as_bf16(w) if bf16 else w)
    merges = MERGES[-(-k // 8)]
    for rounded in (None, bytes([1] * (2 * len(merges) - 1))):
        given_ = {"leaf": 8, "merges": merges, "rounded": rounded, "bias": bias}
        whole = native.tree_gemm(x, packed, isa="portable", **given_)
        for isa in native.instruction_sets():
            for threads in (1, 2, 3):
                found = native.tree_gemm(x, packed, isa=isa, threads=threads, **given_)
                assert_equal_bits(found, whole)


def test_tree_product_is_the_tree_of_leaves():
    """A slow twin: each leaf by fused multiply-adds, then ((a + b) + (c + d)) + e."""
    x, w = spread(3, 2, 18), spread(4, 3, 18)
    found = native.tree_gemm(x, native.pack(w), leaf=4, merges=MERGES[5])
    for m in range(2):
        for n in range(3):
            leaves = []
            for start in range(0, 18, 4):
                acc = np.float32(0)
                for k in range(start, min(18, start + 4)):
                    acc = portable.fma(x[m, k], w[n, k], acc)[()]
                leaves.append(acc)
            a, b, c, d, e = leaves
            assert bits(found[m, n]) == bits(np.float32((a + b) + (c + d)) + e)


@pytest.mark.parametrize("isa", native.instruction_sets())
def test_rows_and_columns_do_not_know_of_each_other(isa):
    x, w = spread(5, 40, 192), spread(6, 100, 192)
    program = {"leaf": 64, "merges": MERGES[3], "isa": isa}
    whole = native.tree_gemm(x, native.pack(w), **program)
    for rows in (1, 2, 3, 4, 5, 7, 14, 15, 29):
        assert_equal_bits(
            native.tree_gemm(x[:rows].copy(), native.pack(w), **program), whole[:rows]
        )
    for cut in (1, 15, 16, 17, 33, 64):
        assert_equal_bits(native.tree_gemm(x, native.pack(w[:cut]), **program), whole[:, :cut])


@pytest.mark.parametrize("bf16", [False, True])
def test_packing_loses_nothing(bf16):
    w = spread(7, 45, 19)
    wide = portable.widened(as_bf16(w)) if bf16 else w
    packed = native.pack(as_bf16(w) if bf16 else w)
    assert_equal_bits(packed.unpacked(), wide)
    assert not packed.panels[1, :, 26:].any()  # columns past the end (45 = 32 + 13) are zero
    turned = native.pack((as_bf16(w) if bf16 else w).T)  # any strides
    assert_equal_bits(turned.unpacked(), wide.T)


@pytest.mark.parametrize("isa", PATHS)
def test_nan_is_canonical_and_infinity_propagates(isa):
    x = np.ones((2, 8), np.float32)
    x[0, 3] = np.array([0xFFC12345], np.uint32).view(np.float32)[0]
    x[1, 3] = np.inf
    found = native.tree_gemm(
        x, native.pack(np.ones((3, 8), np.float32)), leaf=8, merges=b"\0", isa=isa
    )
    assert (bits(found[0]) == 0x7FC00000).all()
    assert np.isposinf(found[1]).all()


@pytest.mark.parametrize("isa", PATHS)
def test_subnormal_numbers_are_kept(isa):
    x = np.full((1, 1), 2.0**-100, np.float32)
    w = native.pack(np.full((1, 1), 2.0**-40, np.float32))
    assert native.tree_gemm(x, w, leaf=64, merges=b"\0", isa=isa)[0, 0] == 2.0**-140


ELEMENTS = np.concatenate(
    [
        np.linspace(-110, 95, 1501, dtype=np.float32),
        spread(8, 100),
        [np.nan, np.inf, -np.inf, 0, -0.0],
    ]
).astype(np.float32)


@pytest.mark.parametrize("kernel", [native.exp, native.silu])
def test_elements_are_the_same_on_every_path_and_anywhere(kernel):
    whole = kernel(ELEMENTS, isa="portable")
    for isa in native.instruction_sets():
        assert_equal_bits(kernel(ELEMENTS, isa=isa), whole)
        for n in range(1, 40):
            assert_equal_bits(kernel(ELEMENTS[:n].copy(), isa=isa), whole[:n])


def test_exp_is_within_two_units_in_the_last_place():
    x = np.linspace(-87, 88, 20001, dtype=np.float32)
    exact = np.exp(x.astype(np.float64))
    unit = np.spacing(exact.astype(np.float32)).astype(np.float64)
    assert np.abs(native.exp(x) - exact).max() >= 0
    assert (np.abs(native.exp(x) - exact) / unit).max() <= 2


@pytest.mark.parametrize("n", [1, 16, 31, 577])
def test_norm_is_right_and_the_same_everywhere(n):
    x, w = spread(9, 5, n), spread(10, n)
    whole = native.rms_norm(x, w, 1e-5, isa="portable")
    wide = x.astype(np.float64)
    exact = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-5) * w
    np.testing.assert_allclose(whole, exact, rtol=1e-6)
    for isa in native.instruction_sets():
        assert_equal_bits(native.rms_norm(x, w, 1e-5, isa=isa, threads=2), whole)
        assert_equal_bits(native.rms_norm(x[3:4].copy(), w, 1e-5, isa=isa), whole[3:4])


def test_log_softmax_is_right_and_the_same_everywhere():
    x = np.random.default_rng(0).normal(size=(4, 1003)).astype(np.float32) * 5
    whole = native.log_softmax(x, isa="portable")
    wide = x.astype(np.float64)
    exact = wide - np.log(np.exp(wide).sum(-1, keepdims=True))
    np.testing.assert_allclose(whole, exact, atol=5e-6)
    for isa in native.instruction_sets():
        assert_equal_bits(native.log_softmax(x, isa=isa), whole)
    x[0, 7] = np.nan
    assert np.isnan(native.log_softmax(x)[0]).all()
    assert np.isfinite(native.log_softmax(x)[1]).all()


def attended(seed: int, bf16: bool, keys: int = 130):
    rng = np.random.default_rng(seed)
    shapes = (2, 4, 6, 32), (2, 2, keys, 32), (2, 2, keys, 32)
    parts = [rng.normal(size=s).astype(np.float32) for s in shapes]
    return [as_bf16(p) for p in parts] if bf16 else parts


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("window", [0, 70])
def test_attention_is_the_same_on_every_path(bf16, window):
    q, k, v = attended(0, bf16)
    first = np.array([0, 66], np.int32)
    given_ = {"scale": 0.2, "first": first, "window": window}
    whole = native.attention(q, k, v, isa="portable", **given_)
    for isa in native.instruction_sets():
        for threads in (1, 2):
            assert_equal_bits(native.attention(q, k, v, isa=isa, threads=threads, **given_), whole)


def test_attention_is_softmax_over_keys_seen():
    q, k, v = attended(1, False)
    found = native.attention(q, k, v, scale=0.2, first=np.array([0, 50], np.int32))
    for b, h, t, start in ((0, 0, 0, 0), (1, 3, 5, 50)):
        last = 130 - 6 + t
        keys, values = (p[b, h // 2, start : last + 1].astype(np.float64) for p in (k, v))
        p = np.exp(keys @ q[b, h, t] * 0.2)
        np.testing.assert_allclose(found[b, t, h], p @ values / p.sum(), rtol=2e-5, atol=1e-6)


def test_attention_does_not_know_of_padding_chunks_or_a_cache():
    q, k, v = attended(2, False)
    whole = native.attention(q, k, v, scale=0.2)
    one = native.attention(q[:, :, 3:4], k[:, :, :128], v[:, :, :128], scale=0.2)
    assert_equal_bits(one[:, 0], whole[:, 3])
    padded = [np.concatenate([np.full((2, 2, 9, 32), 7, np.float32), p], 2) for p in (k, v)]
    found = native.attention(q, *padded, scale=0.2, first=np.full(2, 9, np.int32))
    assert_equal_bits(found, whole)
    # A cache of a window drops old keys: positions go on counting from the sequence's own start.
    windowed = native.attention(q, k, v, scale=0.2, window=40)
    dropped = native.attention(
        q, k[:, :, 80:], v[:, :, 80:], scale=0.2, window=40, first=np.full(2, -80, np.int32)
    )
    assert_equal_bits(dropped, windowed)


def test_combining_parts_finishes_the_tree():
    x, w = spread(11, 3, 32), spread(12, 20, 32)
    packed = native.pack(w)
    whole = native.tree_gemm(x, packed, leaf=8, merges=MERGES[4])
    halves = [
        native.tree_gemm(x[:, a : a + 16].copy(), packed, leaf=8, merges=MERGES[2], first=a)
        for a in (0, 16)
    ]
    for isa in PATHS:
        assert_equal_bits(native.combine(halves, MERGES[2], isa=isa), whole)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"merges": b"\0"}, "leaves of 4"),
        ({"merges": b"\0\0"}, "one tree"),
        ({"bias": np.zeros(9, np.float32)}, "bias has shape"),
        ({"first": 5}, "must fit"),
        ({"isa": "sse9"}, "this machine has"),
    ],
)
def test_what_does_not_fit_is_told(change, message):
    given_ = {"leaf": 4, "merges": b"\0\1"} | change
    with pytest.raises(ValueError, match=message):
        native.tree_gemm(
            np.ones((2, 8), np.float32), native.pack(np.ones((3, 8), np.float32)), **given_
        )
    with pytest.raises(TypeError, match="float32"):
        native.rms_norm(np.ones(3), np.ones(3, np.float32), 1e-5)


def test_without_the_library_there_is_a_warning_and_the_same_bits(tmp_path):
    code = f"""
import pathlib, sys, warnings
from armillary.native import library
library.path = lambda: pathlib.Path({str(tmp_path / "absent.so")!r})
from armillary import native
import numpy as np
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    x = np.arange(16, dtype=np.float32).reshape(2, 8) / 7
    y = native.tree_gemm(x, native.pack(x), leaf=4, merges=bytes([0, 1]))
    native.silu(x)
assert [w.category for w in told] == [native.NativeLibraryWarning], told
assert native.default_isa() == "portable"
print(y.tobytes().hex())
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    x = np.arange(16, dtype=np.float32).reshape(2, 8) / 7
    here = native.tree_gemm(x, native.pack(x), leaf=4, merges=bytes([0, 1]))
    assert shown.stdout.strip() == here.tobytes().hex()
