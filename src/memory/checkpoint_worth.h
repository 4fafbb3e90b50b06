// SPDX-License-Identifier: MIT
// The order in which positions that sequences can go back to are given up. Pure.
#pragma once

#include <cstdint>

namespace moestro {

// The worth of a checkpoint: the tokens since the one before it, which a return without the
// checkpoint would evaluate again. `newer` counts sequences used later; each makes a return less
// likely.
inline double CheckpointWorth(uint32_t tokens, uint32_t newer) {
  return static_cast<double>(tokens) / (1.0 + newer);
}

}  // namespace moestro
