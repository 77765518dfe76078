"""The product for GPUs in Triton's interpreter; only where triton is installed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")

CODE = """
import torch
from armillary.serving.tbik.plan import split
from armillary.serving.tbik.triton_gemm import tree_linear

torch.manual_seed(0)
for dtype in (torch.float32, torch.bfloat16):
    x, w = torch.randn(40, 352).to(dtype), torch.randn(70, 352).to(dtype)
    whole = tree_linear(x, w, leaf=32)
    exact = x.double() @ w.double().t()
    torch.testing.assert_close(whole.double(), exact, rtol=1e-4, atol=1e-3)

    def node(lo, hi):
        if hi - lo == 1:
            return tree_linear(x[:, 32 * lo : 32 * hi], w[:, 32 * lo : 32 * hi], leaf=32)
        middle = split(lo, hi)
        return node(lo, middle) + node(middle, hi)

    assert torch.equal(node(0, 11), whole)  # 352 = 11 leaves
    if dtype == torch.bfloat16:
        for rows in (1, 33):
            assert tree_linear(x[:rows], w, leaf=32).shape == (rows, 70)
print("ok")
"""


def test_the_tree_in_the_interpreter():
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    shown = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, env=environment, timeout=300
    )
    assert shown.stdout.strip() == "ok", shown.stderr
