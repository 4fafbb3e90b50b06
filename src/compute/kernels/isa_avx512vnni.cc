// SPDX-License-Identifier: MIT
// Kernels for AVX-512 F, BW, DQ, VL and VNNI.
#include "compute/kernels/avx512_lanes.h"
#include "compute/kernels/isa.h"
#include "compute/kernels/tile.h"

namespace moestro {

extern const IsaKernels kAvx512VnniKernels;
constinit const IsaKernels kAvx512VnniKernels = {.experts = FindFunctions<Avx512Lanes>};

}  // namespace moestro
