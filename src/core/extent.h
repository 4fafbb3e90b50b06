// SPDX-License-Identifier: MIT
// Places of bytes on disk, the aligned window around them that a direct read fetches, and kinds of
// readers.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/number.h"
#include "base/result.h"

namespace moestro {

struct Extent {
  uint32_t file = 0;  // index into the model's list of shards
  uint64_t offset = 0;
  uint64_t length = 0;
  bool operator==(const Extent&) const = default;
};

// The smallest window of whole blocks that covers an extent. The wanted bytes start `residue`
// bytes into it. Near the end of a file the window may reach past it; such a read comes back short
// and is complete once residue + extent.length bytes have arrived.
struct Window {
  uint64_t offset = 0;
  uint64_t length = 0;
  uint64_t residue = 0;
};

// REQUIRES: block is a power of two.
constexpr Window CoveringWindow(const Extent& extent, uint64_t block) {
  const uint64_t begin = AlignDown(extent.offset, block);
  return {begin, AlignUp(extent.offset + extent.length, block) - begin, extent.offset - begin};
}

// Enough memory for the window of any extent of `length` bytes, wherever it starts.
constexpr uint64_t WindowCapacity(uint64_t length, uint64_t block) {
  if (length == 0) return 0;
  return AlignUp(length, block) + (length % block == 1 ? 0 : block);
}

// Kinds of readers of blocks from files.

enum class ReaderKind : uint8_t { kAuto, kUring, kPread };

// "auto", "uring", "pread"; fails with kUsage listing them.
inline Result<ReaderKind> ParseReaderKind(std::string_view name) {
  if (name == "auto") return ReaderKind::kAuto;
  if (name == "uring") return ReaderKind::kUring;
  if (name == "pread") return ReaderKind::kPread;
  return Fail(Errc::kUsage, "unknown reader '{}' (auto, uring, pread)", name);
}

}  // namespace moestro
