"""C++17 kernels whose results are the same bits on every path.

::

    import numpy as np
    from armillary import native

    w = native.pack(np.float32([[1, 2], [3, 4]]))            # (columns, features)
    native.tree_gemm(x, w, leaf=64, merges=merges)           # x w^T, added in a fixed tree
    native.quantised_gemm(x, native.quantised_pack(codes, scales, zeros, bits=3, group=64))
    native.instruction_sets()                                # ("scalar", "avx2", "avx512")

The library is built with the wheel and loaded by ctypes; no compiler is needed when it runs. One
file holds three instruction sets (AVX-512, AVX2 with FMA, plain C++), chosen by what the processor
has or by ``isa=``. Where the library is absent numpy does the same operations in the same order,
slowly, and says so once.

Arrays are C-contiguous float32 (numpy), or packed weights in float32 or bfloat16 (as uint16).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.lazy import attach

if TYPE_CHECKING:
    from armillary.native.kernels import Packed as Packed
    from armillary.native.kernels import attention as attention
    from armillary.native.kernels import combine as combine
    from armillary.native.kernels import exp as exp
    from armillary.native.kernels import log_softmax as log_softmax
    from armillary.native.kernels import pack as pack
    from armillary.native.kernels import rms_norm as rms_norm
    from armillary.native.kernels import silu as silu
    from armillary.native.kernels import tree_gemm as tree_gemm
    from armillary.native.library import NativeLibraryWarning as NativeLibraryWarning
    from armillary.native.library import default_isa as default_isa
    from armillary.native.library import instruction_sets as instruction_sets
    from armillary.native.quantised import Quantised as Quantised
    from armillary.native.quantised import quantised_gemm as quantised_gemm
    from armillary.native.quantised import quantised_pack as quantised_pack

_HOMES = {
    "NativeLibraryWarning": "library",
    "Packed": "kernels",
    "Quantised": "quantised",
    "attention": "kernels",
    "combine": "kernels",
    "default_isa": "library",
    "exp": "kernels",
    "instruction_sets": "library",
    "log_softmax": "kernels",
    "pack": "kernels",
    "quantised_gemm": "quantised",
    "quantised_pack": "quantised",
    "rms_norm": "kernels",
    "silu": "kernels",
    "tree_gemm": "kernels",
}
__all__ = sorted(_HOMES)
__getattr__ = attach(__name__, _HOMES)
