// SPDX-License-Identifier: MIT
// Compiled with AVX2, FMA and F16C (src/device/CMakeLists.txt).
#include "device/kernels/avx2_lanes.h"
#include "device/kernels/isa_tables.h"
#include "device/kernels/tile.h"

namespace moestro {

const OwnFunctions* Avx2Functions(ggml_type type) { return FindFunctions<Avx2Lanes<false>>(type); }

}  // namespace moestro
