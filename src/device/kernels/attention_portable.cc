// SPDX-License-Identifier: MIT
// For machines without a kernel of their own: the compiler's vectors, for whatever it builds for.
#include "device/kernels/attention_block.h"
#include "device/kernels/attention_kernels.h"
#include "device/kernels/float_lanes_portable.h"

namespace moestro {

AttentionKernel PortableAttention() { return kAttentionKernel<FloatLanesPortable>; }

}  // namespace moestro
