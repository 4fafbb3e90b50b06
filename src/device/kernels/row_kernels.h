// SPDX-License-Identifier: MIT
// The row kernels of each instruction set. REQUIRES of callers: the processor has it.
#pragma once

#include "device/row_kernel.h"

namespace moestro {

RowKernel Avx512Row();
RowKernel Avx2Row();
RowKernel PortableRow();

}  // namespace moestro
