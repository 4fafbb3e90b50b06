// SPDX-License-Identifier: MIT
// Kernels for NEON, which every arm64 has.
#include "compute/kernels/attention_block.h"
#include "compute/kernels/float_lanes_neon.h"
#include "compute/kernels/isa.h"
#include "compute/kernels/neon_lanes.h"
#include "compute/kernels/row_block.h"
#include "compute/kernels/state_block.h"
#include "compute/kernels/tile.h"

namespace moestro {

extern const IsaKernels kNeonKernels;
constinit const IsaKernels kNeonKernels = {.experts = FindFunctions<NeonLanes<false>>,
                                           .row = &kRowKernel<FloatLanesNeon>,
                                           .attention = &kAttentionKernel<FloatLanesNeon>,
                                           .state = &kStateKernel<FloatLanesNeon>};

}  // namespace moestro
