// SPDX-License-Identifier: MIT
// Compiled for AVX2, FMA and F16C.
#include "device/kernels/float_lanes256.h"
#include "device/kernels/state_block.h"
#include "device/kernels/state_kernels.h"

namespace moestro {

StateKernel Avx2State() { return kStateKernel<FloatLanes256>; }

}  // namespace moestro
