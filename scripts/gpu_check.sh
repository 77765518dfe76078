#!/usr/bin/env bash
# On a machine with an NVIDIA GPU: do the products of triton_gemm give the same bits for any number
# of rows and columns, and the right values? Needs a CUDA build of torch, which brings triton.
# Usage: scripts/gpu_check.sh [PYTHON]   (default .venv/bin/python)
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHONPATH=src "${1:-.venv/bin/python}" - <<'PY'
import sys

import torch

if not torch.cuda.is_available():
    sys.exit("no GPU: nothing was checked")
from armillary.serving.tbik.triton_gemm import tree_linear

torch.manual_seed(0)
wrong = 0
for dtype in (torch.float32, torch.bfloat16):
    for k, n in ((576, 1536), (1536, 576), (6144, 2048)):
        x = torch.randn(512, k, device="cuda").to(dtype)
        w = torch.randn(n, k, device="cuda").to(dtype)
        whole = tree_linear(x, w)
        exact = x.double() @ w.double().t()
        error = float((whole.double() - exact).abs().max() / exact.abs().max())
        differing = 0
        for rows in (1, 2, 3, 7, 16, 33, 128, 511):
            differing += int((tree_linear(x[:rows], w) != whole[:rows]).sum())
        for columns in (1, 31, 64, n // 3):
            differing += int((tree_linear(x, w[:columns]) != whole[:, :columns]).sum())
        plain = sum(int(((x[:r] @ w.t()) != (x @ w.t())[:r]).sum()) for r in (1, 7, 128))
        print(f"{dtype} K={k} N={n}: {differing} elements differ (torch: {plain}), error {error:.1e}")
        wrong += differing + (error > 1e-3)
sys.exit(f"{wrong} failures" if wrong else 0)
PY
