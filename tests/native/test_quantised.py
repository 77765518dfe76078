"""Weights of 1 to 4 bits: what is packed comes back, and every path gives the same bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary import native
from armillary.native import portable

PATHS = ("portable", *native.instruction_sets())


def weights(seed: int, columns: int, features: int, bits: int, group: int, zeros: bool = True):
    rng = np.random.default_rng(seed)
    groups = -(-features // group)
    codes = rng.integers(0, 1 << bits, size=(columns, features), dtype=np.uint8)
    scales = (rng.normal(size=(columns, groups)) * 10.0 ** rng.uniform(-7, 2)).astype(np.float16)
    zero = (rng.uniform(-1, 1 << bits, size=(columns, groups))).astype(np.float16)
    return codes, scales, zero if zeros and bits > 1 else None


@given(
    bits=st.integers(1, 4), columns=st.integers(1, 40), chunks=st.integers(1, 5),
    seed=st.integers(0, 99),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_what_is_packed_comes_back_in_exactly_b_bits(bits, columns, chunks, seed):
    codes, scales, zeros = weights(seed, columns, 32 * chunks, bits, 32)
    packed = native.quantised_pack(codes, scales, zeros, bits=bits, group=32)
    np.testing.assert_array_equal(packed.codes(), codes)
    np.testing.assert_array_equal(packed.parameters()[0], scales)
    padded = -(-columns // 16) * 16
    per_weight = bits / 8 + (2 if zeros is None else 4) / 32
    assert packed.nbytes == padded * 32 * chunks * per_weight


@pytest.mark.parametrize("bits", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("rows", "columns", "features", "group"),
    [(1, 70, 192, 64), (3, 33, 96, 64), (7, 130, 64, 32), (9, 16, 160, 96)],
)
def test_every_path_gives_the_same_bits(rows, columns, features, group, bits):
    x = np.random.default_rng(1).normal(size=(rows, features)).astype(np.float32)
    x *= 10.0 ** np.random.default_rng(2).uniform(-4, 4, size=x.shape).astype(np.float32)
    codes, scales, zeros = weights(3, columns, features, bits, group)
    packed = native.quantised_pack(codes, scales, zeros, bits=bits, group=group)
    whole = native.quantised_gemm(x, packed, isa="portable").view(np.uint32)
    for isa in native.instruction_sets():
        for threads in (1, 3):
            found = native.quantised_gemm(x, packed, isa=isa, threads=threads)
            np.testing.assert_array_equal(found.view(np.uint32), whole)
        alone = native.quantised_gemm(x[-1:].copy(), packed, isa=isa)  # rows know of no other
        np.testing.assert_array_equal(alone.view(np.uint32), whole[-1:])


@pytest.mark.parametrize("isa", PATHS)
@pytest.mark.parametrize("bits", [1, 2, 3, 4])
def test_the_product_is_that_of_the_dequantised_weights(bits, isa):
    x = np.random.default_rng(4).normal(size=(5, 128)).astype(np.float32)
    packed = native.quantised_pack(*weights(5, 40, 128, bits, 64), bits=bits, group=64)
    found = native.quantised_gemm(x, packed, isa=isa)
    exact = x.astype(np.float64) @ packed.dequantised().astype(np.float64).T
    np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-5 * np.abs(exact).max())


@pytest.mark.parametrize("isa", PATHS)
def test_small_whole_numbers_are_exact(isa):
    """Codes, zeros and inputs are small integers and scales powers of two: nothing rounds."""
    rng = np.random.default_rng(6)
    x = rng.integers(-8, 9, size=(4, 64)).astype(np.float32)
    codes = rng.integers(0, 8, size=(20, 64), dtype=np.uint8)
    scales = np.full((20, 1), 0.25, np.float16)
    zeros = rng.integers(0, 8, size=(20, 1)).astype(np.float16)
    packed = native.quantised_pack(codes, scales, zeros, bits=3, group=64)
    expected = 0.25 * (x @ (codes.astype(np.float32) - zeros.astype(np.float32)).T)
    np.testing.assert_array_equal(native.quantised_gemm(x, packed, isa=isa), expected)


@pytest.mark.parametrize("isa", PATHS)
def test_the_least_scales_and_not_a_number(isa):
    """Subnormal half-precision scales are exact; NaN comes out as the one quiet NaN."""
    codes = np.ones((16, 32), np.uint8)
    scales = np.full((16, 1), 2.0**-24, np.float16)
    packed = native.quantised_pack(codes, scales, None, bits=1, group=32)
    x = np.ones((2, 32), np.float32)
    x[1, 5] = -np.float32(np.nan)
    found = native.quantised_gemm(x, packed, isa=isa)
    np.testing.assert_array_equal(found[0], np.full(16, 32 * 2.0**-24, np.float32))
    assert (found[1].view(np.uint32) == portable.CANONICAL_NAN).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bits": 5}, "bits=5: it must be 1, 2, 3 or 4"),
        ({"bits": 1}, "codes reach 3: at 1 bits 1 is most"),
        ({"group": 48}, "must be multiples of 32"),
        ({"scales": np.ones((4, 2), np.float32)}, r"scales is float32 \(4, 2\): float16 \(4, 1\)"),
        ({"zeros": np.full((4, 1), np.nan, np.float16)}, "zeros has values that are not finite"),
    ],
)
def test_what_does_not_fit_is_told(change, message):
    given_ = {
        "codes": np.full((4, 64), 3, np.uint8), "scales": np.ones((4, 1), np.float16),
        "zeros": None, "bits": 2, "group": 64,
    } | change  # fmt: skip
    with pytest.raises(ValueError, match=message):
        native.quantised_pack(**given_)
    packed = native.quantised_pack(
        np.zeros((4, 64), np.uint8), np.ones((4, 1), np.float16), None, bits=2, group=64
    )
    with pytest.raises(ValueError, match="x has 32 features, the weights 64"):
        native.quantised_gemm(np.ones((1, 32), np.float32), packed)
