// SPDX-License-Identifier: MIT
// Kernels for AVX2, FMA and F16C.
#include "compute/kernels/attention_block.h"
#include "compute/kernels/avx2_lanes.h"
#include "compute/kernels/float_lanes256.h"
#include "compute/kernels/isa.h"
#include "compute/kernels/row_block.h"
#include "compute/kernels/state_block.h"
#include "compute/kernels/tile.h"

namespace moestro {

extern const IsaKernels kAvx2Kernels;
constinit const IsaKernels kAvx2Kernels = {.experts = FindFunctions<Avx2Lanes<false>>,
                                           .row = &kRowKernel<FloatLanes256>,
                                           .attention = &kAttentionKernel<FloatLanes256>,
                                           .state = &kStateKernel<FloatLanes256>};

}  // namespace moestro
