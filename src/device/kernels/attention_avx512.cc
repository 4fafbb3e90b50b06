// SPDX-License-Identifier: MIT
// Compiled for AVX-512.
#include "device/kernels/attention_block.h"
#include "device/kernels/attention_kernels.h"
#include "device/kernels/float_lanes512.h"

namespace moestro {

AttentionKernel Avx512Attention() { return kAttentionKernel<FloatLanes512>; }

}  // namespace moestro
