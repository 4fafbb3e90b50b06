// SPDX-License-Identifier: MIT
// The instruction sets that this processor has, as our kernels' files are compiled for them.
//
// Thread rule: any thread.
#pragma once

namespace moestro {

bool HasAvx2();    // with FMA and F16C
bool HasAvx512();  // F, BW, DQ and VL, and HasAvx2()

}  // namespace moestro
