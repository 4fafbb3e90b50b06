// SPDX-License-Identifier: MIT
// For machines without a kernel of their own: the compiler's vectors, for whatever it builds for.
#include "device/kernels/float_lanes_portable.h"
#include "device/kernels/row_block.h"
#include "device/kernels/row_kernels.h"

namespace moestro {

RowKernel PortableRow() { return kRowKernel<FloatLanesPortable>; }

}  // namespace moestro
