// SPDX-License-Identifier: MIT
// Kernels for AVX-512 F, BW, DQ, VL and VNNI.
#include "device/kernels/avx512_lanes.h"
#include "device/kernels/isa.h"
#include "device/kernels/tile.h"

namespace moestro {

extern const IsaKernels kAvx512VnniKernels;
constinit const IsaKernels kAvx512VnniKernels = {.experts = FindFunctions<Avx512Lanes>};

}  // namespace moestro
