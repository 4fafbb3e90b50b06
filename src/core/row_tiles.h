// SPDX-License-Identifier: MIT
// Division of a matrix's rows among the threads of a team: each thread gets a range of whole tiles,
// in the order of the threads.
#pragma once

#include <algorithm>
#include <cstdint>

namespace moestro {

// Kernels work on tiles of this many rows. Blocks and shares are whole tiles.
inline constexpr uint32_t kTileRows = 16;

constexpr uint64_t TilesOf(uint32_t rows) { return (uint64_t{rows} + kTileRows - 1) / kTileRows; }

// The first row of thread `thread` in a matrix. For thread == threads: the end of the rows.
constexpr uint32_t ShareBegin(uint32_t rows, uint32_t thread, uint32_t threads) {
  return std::min(rows, static_cast<uint32_t>(TilesOf(rows) * thread / threads) * kTileRows);
}

}  // namespace moestro
