"""GPTQ against its definition, and where it must equal rounding to nearest."""

from __future__ import annotations

import pytest
import torch

from armillary.serving.gemq import gptq as module
from armillary.serving.gemq.gptq import gptq, rounded


def problem(seed: int, features: int = 128, rows: int = 24, tokens: int = 400):
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(features, features, generator=generator)
    x = torch.randn(tokens, features, generator=generator) @ mix
    return torch.randn(rows, features, generator=generator), x


@pytest.mark.parametrize("bits", [1, 2, 3, 4])
def test_uncorrelated_inputs_are_rounded_to_nearest(bits):
    """H = I: the Cholesky factor is diagonal, nothing is made up for."""
    w, _ = problem(0)
    found = gptq(w[None], torch.eye(128)[None], bits, 64, search=False)
    plain = rounded(w, bits, 64)
    assert torch.equal(found.codes[0], plain.codes)
    assert torch.equal(found.scales[0], plain.scales)


@pytest.mark.parametrize("bits", [2, 4])
def test_it_is_the_definition_column_by_column(bits):
    """A slow twin that solves, at each feature, for the best later features given those fixed."""
    w, x = problem(1, features=64, rows=3)
    h = (x.T @ x / len(x)).double()
    found = gptq(w[None], h[None].float(), bits, 64, search=False)
    h += module.DAMPING * h.diagonal().mean() * torch.eye(64)
    step, zero = found.scales[0].float(), found.zeros[0].float()
    work = w.double().clone()
    for i in range(64):
        code = (work[:, i] / step[:, 0] + zero[:, 0]).round().clamp(0, 2**bits - 1)
        fixed = ((code - zero[:, 0]) * step[:, 0]).double()
        change = fixed - work[:, i]
        if i < 63:  # min over later features of the quadratic form, feature i moved by `change`
            rest = -torch.linalg.solve(h[i + 1 :, i + 1 :], h[i + 1 :, i])
            work[:, i + 1 :] += change[:, None] * rest
        work[:, i] = fixed
    torch.testing.assert_close(found.dequantised()[0], work.float(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bits", [2, 3, 4])
def test_outputs_are_nearer_than_to_nearest(bits):
    w, x = problem(2)
    exact = x @ w.T
    found = gptq(w[None], (x.T @ x)[None], bits, 64)

    def error(matrix):
        return float((x @ matrix.T - exact).square().mean())

    nearest = error(rounded(w, bits, 64, search=True).dequantised())
    assert error(found.dequantised()[0]) < 0.7 * nearest


def test_matrices_together_are_matrices_alone():
    (a, x), (b, y) = problem(3), problem(4)
    h = torch.stack([x.T @ x, y.T @ y])
    both = gptq(torch.stack([a, b]), h, 3, 64)
    for i, w in enumerate((a, b)):
        alone = gptq(w[None], h[i : i + 1], 3, 64)
        torch.testing.assert_close(both.dequantised()[i], alone.dequantised()[0])


def test_dead_features_and_padding():
    w, x = problem(5, features=72)
    x[:, 10] = 0
    found = gptq(w[None], (x.T @ x)[None], 2, 64)
    assert found.bits == 4  # 72 is no multiple of 64
    assert found.codes.shape == (1, 24, 128)
    assert (found.dequantised()[0, :, 10] == 0).all()
    assert (found.dequantised()[0, :, 72:] == 0).all()
