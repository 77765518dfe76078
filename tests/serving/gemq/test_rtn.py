"""Rounding without calibration, and what a width costs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.serving.gemq import rtn
from armillary.serving.gemq.gptq import rounded
from armillary.serving.gemq.pack import PackedMatrix


def test_one_bit_is_the_sign_times_the_mean_magnitude():
    w = torch.tensor([[1.0, -2.0, 3.0, -4.0] * 16])
    coded = rtn.round_to_nearest(w, 1, 64)
    assert coded.zeros is None
    torch.testing.assert_close(coded.dequantised(), 2.5 * w.sign())


def test_a_grid_that_holds_the_weights_loses_nothing():
    """Weights on 0.5 * (code - 2), with both ends present."""
    codes = torch.arange(64) % 8
    w = 0.5 * (codes[None].float() - 2)
    coded = rtn.round_to_nearest(w, 3, 64)
    assert torch.equal(coded.codes[0].long(), codes)
    assert torch.equal(coded.dequantised(), w)
    assert float(coded.zeros) == 2


def test_the_range_includes_zero():
    coded = rtn.round_to_nearest(torch.full((1, 64), 7.0), 2, 64)
    assert float(coded.zeros) == 0
    torch.testing.assert_close(coded.dequantised(), torch.full((1, 64), 7.0), rtol=1e-3, atol=0)
    nothing = rtn.round_to_nearest(torch.zeros(1, 64), 2, 64)
    assert torch.equal(nothing.dequantised(), torch.zeros(1, 64))


@given(bits=st.integers(2, 4), seed=st.integers(0, 999))
@settings(max_examples=40, deadline=None)
def test_rounding_is_within_a_step_and_a_searched_range_is_no_worse(bits, seed):
    w = torch.randn(3, 128, generator=torch.Generator().manual_seed(seed))
    plain = rtn.round_to_nearest(w, bits, 64)
    error = (plain.dequantised() - w).unflatten(1, (-1, 64)).abs()
    # Half a step, and as much again where the rounded zero moves the ends.
    assert (error <= plain.scales.float()[..., None] * 1.01 + 1e-6).all()
    searched = rtn.round_to_nearest(w, bits, 64, search=True)
    assert (searched.dequantised() - w).square().sum() <= error.square().sum() * (1 + 1e-6)


@given(
    bits=st.integers(1, 4), columns=st.sampled_from([16, 24, 64]),
    features=st.sampled_from([64, 192, 40]),
)  # fmt: skip
@settings(max_examples=30, deadline=None)
def test_packed_bytes_are_what_the_budget_counts(bits, columns, features):
    w = torch.randn(columns, features, generator=torch.Generator().manual_seed(bits))
    coded = rounded(w, bits, 64)
    matrix = PackedMatrix.of(coded, features)
    assert matrix.nbytes == rtn.matrix_bytes(columns, features, bits, 64)
    torch.testing.assert_close(
        matrix.dequantised(), coded.dequantised()[:, :features], rtol=0, atol=0
    )
    if features % 64:
        assert matrix.bits == 4


def test_bytes_a_weight():
    """Group 64: 2 bits + 32 / 64; one bit has no zero: 1 + 16 / 64. Group 128: half the extra."""
    weights = 3 * 128 * 64
    assert rtn.expert_bytes(128, 64, 2, 64) == weights * 2.5 / 8
    assert rtn.expert_bytes(128, 64, 1, 64) == weights * 1.25 / 8
    assert rtn.expert_bytes(128, 128, 3, 128) == 3 * 128 * 128 * 3.25 / 8
    assert rtn.group_for(576, 192) == 64
    assert rtn.group_for(2048, 1024) == 128


@pytest.mark.parametrize("bits", [1, 2, 3, 4])
@pytest.mark.parametrize("rows", [1, 5, 80])
def test_packed_products_and_gradients_are_those_of_the_plain_matrix(bits, rows):
    generator = torch.Generator().manual_seed(rows)
    w = torch.randn(48, 128, generator=generator)
    matrix = PackedMatrix.of(rounded(w, bits, 64), 128)
    x = torch.randn(rows, 128, generator=generator, requires_grad=True)
    twin = x.detach().clone().requires_grad_(True)
    out, plain = matrix(x), twin @ matrix.dequantised().T
    torch.testing.assert_close(out, plain, rtol=1e-4, atol=1e-4)
    weight = torch.randn(out.shape, generator=generator)
    (out * weight).sum().backward()
    (plain * weight).sum().backward()
    torch.testing.assert_close(x.grad, twin.grad)


def test_changing_the_type_of_a_model_leaves_packed_weights_alone():
    matrix = PackedMatrix.of(rounded(torch.randn(16, 64), 3, 64), 64)
    before = matrix.dequantised()
    for change in (torch.nn.Module.bfloat16, torch.nn.Module.float, torch.nn.Module.half):
        change(matrix)
        assert matrix.scales.dtype == torch.float16
        assert torch.equal(matrix.dequantised(), before)
    assert np.asarray(matrix(torch.ones(2, 64, dtype=torch.bfloat16)).shape).tolist() == [2, 16]
