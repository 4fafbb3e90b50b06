// SPDX-License-Identifier: MIT
// Kernels for AVX2, FMA and F16C.
#include "device/kernels/attention_block.h"
#include "device/kernels/avx2_lanes.h"
#include "device/kernels/float_lanes256.h"
#include "device/kernels/isa.h"
#include "device/kernels/row_block.h"
#include "device/kernels/state_block.h"
#include "device/kernels/tile.h"

namespace moestro {

extern const IsaKernels kAvx2Kernels;
constinit const IsaKernels kAvx2Kernels = {.experts = FindFunctions<Avx2Lanes<false>>,
                                           .row = &kRowKernel<FloatLanes256>,
                                           .attention = &kAttentionKernel<FloatLanes256>,
                                           .state = &kStateKernel<FloatLanes256>};

}  // namespace moestro
