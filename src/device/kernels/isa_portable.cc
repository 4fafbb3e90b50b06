// SPDX-License-Identifier: MIT
// Portable kernels: the compiler's vectors, for any target.
#include "device/kernels/attention_block.h"
#include "device/kernels/float_lanes_portable.h"
#include "device/kernels/isa.h"
#include "device/kernels/row_block.h"
#include "device/kernels/state_block.h"

namespace moestro {

extern const IsaKernels kPortableKernels;
constinit const IsaKernels kPortableKernels = {.row = &kRowKernel<FloatLanesPortable>,
                                               .attention = &kAttentionKernel<FloatLanesPortable>,
                                               .state = &kStateKernel<FloatLanesPortable>};

}  // namespace moestro
