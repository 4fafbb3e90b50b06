// SPDX-License-Identifier: MIT
// The types with a scale per 32 weights. Compiled with AVX-512 F, BW, VL, DQ and VNNI
// (src/device/CMakeLists.txt).
#include "device/kernels/avx512_lanes.h"
#include "device/kernels/isa_tables.h"
#include "device/kernels/tile.h"

namespace moestro {

const OwnFunctions* Avx512VnniFunctions32(ggml_type type) {
  return FindFunctions32<Avx512Lanes>(type);
}

}  // namespace moestro
