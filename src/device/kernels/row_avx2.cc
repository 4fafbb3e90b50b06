// SPDX-License-Identifier: MIT
// Compiled for AVX2, FMA and F16C.
#include "device/kernels/float_lanes256.h"
#include "device/kernels/row_block.h"
#include "device/kernels/row_kernels.h"

namespace moestro {

RowKernel Avx2Row() { return kRowKernel<FloatLanes256>; }

}  // namespace moestro
