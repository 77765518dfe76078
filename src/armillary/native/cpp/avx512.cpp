// The kernels for this instruction set; see kernels.inc.
#define ISA 2
#include "kernels.inc"

const Kernels* avx512_kernels() { return &TABLE; }
