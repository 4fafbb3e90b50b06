// SPDX-License-Identifier: MIT
// Portable kernels: the compiler's vectors, for any target.
#include "compute/kernels/attention_block.h"
#include "compute/kernels/float_lanes.h"
#include "compute/kernels/isa.h"
#include "compute/kernels/row_block.h"
#include "compute/kernels/state_block.h"

namespace moestro {

extern const IsaKernels kPortableKernels;
constinit const IsaKernels kPortableKernels = {.row = &kRowKernel<FloatLanesPortable>,
                                               .attention = &kAttentionKernel<FloatLanesPortable>,
                                               .state = &kStateKernel<FloatLanesPortable>};

}  // namespace moestro
