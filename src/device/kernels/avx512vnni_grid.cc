// SPDX-License-Identifier: MIT
// The types with indices into a grid. Compiled with AVX-512 F, BW, VL, DQ and VNNI
// (src/device/CMakeLists.txt).
#include "device/kernels/avx512_lanes.h"
#include "device/kernels/isa_tables.h"
#include "device/kernels/tile.h"

namespace moestro {

const OwnFunctions* Avx512VnniFunctionsGrid(ggml_type type) {
  return FindFunctionsGrid<Avx512Lanes>(type);
}

}  // namespace moestro
