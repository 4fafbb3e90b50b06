// SPDX-License-Identifier: MIT
// One function per instruction set, each in a file compiled for it. Those files hold templates over
// their own Lanes type and nothing else: an inline function of a common header compiled there could
// be the copy that the linker keeps for everybody.
#pragma once

#include <ggml.h>

#include <cstddef>
#include <cstdint>

#include "device/expert_kernel.h"

namespace moestro {

// What differs between kernels; the activation type follows from activation_block: 32 values are
// Q8_0, 256 are Q8_K.
struct OwnFunctions {
  decltype(ExpertKernel::quantise) quantise;
  decltype(ExpertKernel::multiply) multiply;
  decltype(ExpertKernel::interleave) interleave;
  int64_t activation_block;
  size_t activation_block_bytes;
  bool takes_shifted_grid;  // grids.h
};

// nullptr for a type without a kernel. AVX-512 is split to build on two cores.
const OwnFunctions* Avx2Functions(ggml_type type);
const OwnFunctions* AvxVnniFunctions(ggml_type type);
const OwnFunctions* Avx512VnniFunctions32(ggml_type type);
const OwnFunctions* Avx512VnniFunctions256(ggml_type type);
const OwnFunctions* Avx512VnniFunctionsGrid(ggml_type type);

}  // namespace moestro
