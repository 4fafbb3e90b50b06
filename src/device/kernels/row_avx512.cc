// SPDX-License-Identifier: MIT
// Compiled for AVX-512.
#include "device/kernels/float_lanes512.h"
#include "device/kernels/row_block.h"
#include "device/kernels/row_kernels.h"

namespace moestro {

RowKernel Avx512Row() { return kRowKernel<FloatLanes512>; }

}  // namespace moestro
