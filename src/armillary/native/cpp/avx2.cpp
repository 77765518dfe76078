// The kernels for this instruction set; see kernels.inc.
#define ISA 1
#include "kernels.inc"

const Kernels* avx2_kernels() { return &TABLE; }
