// SPDX-License-Identifier: MIT
// Which of several positions that sequences can go back to is given up first. Pure.
#pragma once

#include <cstdint>

namespace moestro {

// What is evaluated again without the checkpoint: the tokens since the one before it. `newer`: how
// many sequences were used later; each makes a return less likely.
inline double CheckpointWorth(uint32_t tokens, uint32_t newer) {
  return static_cast<double>(tokens) / (1.0 + newer);
}

}  // namespace moestro
