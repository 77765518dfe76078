// The kernels for this instruction set; see kernels.inc.
#define ISA 0
#include "kernels.inc"

const Kernels* scalar_kernels() { return &TABLE; }
