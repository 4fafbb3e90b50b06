// SPDX-License-Identifier: MIT
// Kernels for AVX2, FMA, F16C and AVX-VNNI.
#include "device/kernels/avx2_lanes.h"
#include "device/kernels/isa.h"
#include "device/kernels/tile.h"

namespace moestro {

extern const IsaKernels kAvxVnniKernels;
constinit const IsaKernels kAvxVnniKernels = {.experts = FindFunctions<Avx2Lanes<true>>};

}  // namespace moestro
