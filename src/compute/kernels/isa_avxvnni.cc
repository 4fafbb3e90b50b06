// SPDX-License-Identifier: MIT
// Kernels for AVX2, FMA, F16C and AVX-VNNI.
#include "compute/kernels/avx2_lanes.h"
#include "compute/kernels/isa.h"
#include "compute/kernels/tile.h"

namespace moestro {

extern const IsaKernels kAvxVnniKernels;
constinit const IsaKernels kAvxVnniKernels = {.experts = FindFunctions<Avx2Lanes<true>>};

}  // namespace moestro
