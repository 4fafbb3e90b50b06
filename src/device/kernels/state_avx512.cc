// SPDX-License-Identifier: MIT
// Compiled for AVX-512.
#include "device/kernels/float_lanes512.h"
#include "device/kernels/state_block.h"
#include "device/kernels/state_kernels.h"

namespace moestro {

StateKernel Avx512State() { return kStateKernel<FloatLanes512>; }

}  // namespace moestro
