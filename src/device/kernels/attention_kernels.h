// SPDX-License-Identifier: MIT
// One function per instruction set, each in a file compiled for it (see isa_tables.h).
#pragma once

#include "device/attention_kernel.h"

namespace moestro {

AttentionKernel PortableAttention();
AttentionKernel Avx2Attention();    // AVX2, FMA, F16C
AttentionKernel Avx512Attention();  // AVX-512 F, BW, DQ, VL

}  // namespace moestro
