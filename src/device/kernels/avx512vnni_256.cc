// SPDX-License-Identifier: MIT
// The types with 256 weights to a block. Compiled with AVX-512 F, BW, VL, DQ and VNNI
// (src/device/CMakeLists.txt).
#include "device/kernels/avx512_lanes.h"
#include "device/kernels/isa_tables.h"
#include "device/kernels/tile.h"

namespace moestro {

const OwnFunctions* Avx512VnniFunctions256(ggml_type type) {
  return FindFunctions256<Avx512Lanes>(type);
}

}  // namespace moestro
