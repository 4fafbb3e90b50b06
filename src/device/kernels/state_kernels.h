// SPDX-License-Identifier: MIT
// One function per instruction set, each in a file compiled for it (see isa_tables.h).
#pragma once

#include "device/state_kernel.h"

namespace moestro {

StateKernel PortableState();
StateKernel Avx2State();    // AVX2, FMA, F16C
StateKernel Avx512State();  // AVX-512 F, BW, DQ, VL

}  // namespace moestro
