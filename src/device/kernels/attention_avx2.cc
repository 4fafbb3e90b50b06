// SPDX-License-Identifier: MIT
// Compiled for AVX2, FMA and F16C.
#include "device/kernels/attention_block.h"
#include "device/kernels/attention_kernels.h"
#include "device/kernels/float_lanes256.h"

namespace moestro {

AttentionKernel Avx2Attention() { return kAttentionKernel<FloatLanes256>; }

}  // namespace moestro
