// SPDX-License-Identifier: MIT
// Kernels for AVX-512 F, BW, DQ and VL.
#include "compute/kernels/attention_block.h"
#include "compute/kernels/float_lanes512.h"
#include "compute/kernels/isa.h"
#include "compute/kernels/row_block.h"
#include "compute/kernels/state_block.h"

namespace moestro {

extern const IsaKernels kAvx512Kernels;
constinit const IsaKernels kAvx512Kernels = {.row = &kRowKernel<FloatLanes512>,
                                             .attention = &kAttentionKernel<FloatLanes512>,
                                             .state = &kStateKernel<FloatLanes512>};

}  // namespace moestro
