// SPDX-License-Identifier: MIT
// Kernels for AVX-512 F, BW, DQ and VL.
#include "device/kernels/attention_block.h"
#include "device/kernels/float_lanes512.h"
#include "device/kernels/isa.h"
#include "device/kernels/row_block.h"
#include "device/kernels/state_block.h"

namespace moestro {

extern const IsaKernels kAvx512Kernels;
constinit const IsaKernels kAvx512Kernels = {.row = &kRowKernel<FloatLanes512>,
                                             .attention = &kAttentionKernel<FloatLanes512>,
                                             .state = &kStateKernel<FloatLanes512>};

}  // namespace moestro
