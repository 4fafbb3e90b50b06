// SPDX-License-Identifier: MIT
// Weights from their files into a set: many reads are under way into a bounded piece of memory
// while the threads of the team store, and so repack, what has landed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/extent.h"
#include "device/team.h"
#include "device/weight_set.h"
#include "store/read_queue.h"

namespace moestro {

// What is read and stored at once: all of a weight that changes its layout, else a part of it that
// begins at a multiple of kDenseBlock (model/weights_id.h).
struct WeightPiece {
  size_t weight = 0;    // its index in the set
  uint64_t offset = 0;  // in the weight
  Extent from;
};

// The weights of the set, whose bytes lie at `from`, cut into pieces. The longest come first: what
// one thread alone can repack must not be what the others wait for in the end.
std::vector<WeightPiece> CutWeights(const WeightSet& set, std::span<const Extent> from);

// Bytes of staging memory with which these pieces load well; less for few and small ones. Beside
// its own two blocks it holds any of them.
uint64_t StagingFor(std::span<const WeightPiece> pieces);

struct WeightLoad {
  WeightSet& set;  // allocated
  std::span<const WeightPiece> pieces;
  ReadQueue& queue;              // REQUIRES: it is idle
  std::span<std::byte> staging;  // aligned to the queue's block. REQUIRES: the longest piece fits
  Team* team = nullptr;          // null: the caller stores alone, as a device's driver may want it
  // Told by the caller's thread how many bytes are stored by now.
  std::function<void(uint64_t bytes)> stored;
  // Shown each piece as it is in the file by the thread that is about to store it; may be empty.
  std::function<void(const WeightPiece& piece, std::span<const std::byte> bytes)> landed = {};
};

// Reads and stores all pieces. kIo: the first read that failed for good; what Store()
// says. The set is then of no use.
// No read is under way any more when it returns.
Status LoadWeights(const WeightLoad& load);

}  // namespace moestro
