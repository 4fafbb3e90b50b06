// SPDX-License-Identifier: MIT
// Numbered pieces of work made by several threads and taken in their order by one, for files that
// are written front to back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"

namespace moestro {

using MakePiece = std::function<Result<std::vector<std::byte>>(uint64_t piece)>;
using TakePiece = std::function<Status(std::span<const std::byte> bytes)>;

// Makes pieces 0 to n - 1 on `threads` threads of its own and passes each to `take` in the calling
// thread; at most 2 * threads + 1 pieces exist at a time. The threads have ended when the call
// returns. Fails with the first error in the pieces' order, of `make` or `take`; kNoMemory when a
// thread cannot be started. REQUIRES: threads > 0; `make` may be called by several threads at a
// time.
Status RunInOrder(uint64_t n, uint32_t threads, const MakePiece& make, const TakePiece& take);

}  // namespace moestro
