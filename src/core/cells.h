// SPDX-License-Identifier: MIT
// Cells of a KV cache: each holds the key and the value of one position in every layer.
#pragma once

#include <cstdint>

namespace moestro {

// Consecutive cells that hold consecutive positions of a sequence.
struct CellRun {
  uint32_t first = 0;
  uint32_t count = 0;
  bool operator==(const CellRun&) const = default;
};

}  // namespace moestro
