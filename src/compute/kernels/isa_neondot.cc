// SPDX-License-Identifier: MIT
// Kernels for NEON with dot products.
#include "compute/kernels/isa.h"
#include "compute/kernels/neon_lanes.h"
#include "compute/kernels/tile.h"

namespace moestro {

extern const IsaKernels kNeonDotKernels;
constinit const IsaKernels kNeonDotKernels = {.experts = FindFunctions<NeonLanes<true>>};

}  // namespace moestro
