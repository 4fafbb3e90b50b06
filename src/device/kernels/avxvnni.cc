// SPDX-License-Identifier: MIT
// Compiled with AVX2, FMA, F16C and AVX-VNNI (src/device/CMakeLists.txt).
#include "device/kernels/avx2_lanes.h"
#include "device/kernels/isa_tables.h"
#include "device/kernels/tile.h"

namespace moestro {

const OwnFunctions* AvxVnniFunctions(ggml_type type) {
  return FindFunctions<Avx2Lanes<true>>(type);
}

}  // namespace moestro
