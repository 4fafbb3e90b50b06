// SPDX-License-Identifier: MIT
// The bytes of a file that are present, as ranges. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "hub/web_head.h"

namespace moestro {

class RangeSet {
 public:
  // Overlaps and neighbours become one. An empty range adds nothing.
  void Add(ByteRange range);
  void Clear() { ranges_.clear(); }

  // The first missing byte at or above `from`.
  uint64_t FirstMissing(uint64_t from = 0) const;
  // Missing bytes from FirstMissing(from) on, up to `end`; nullopt: none is missing.
  std::optional<ByteRange> FirstGap(uint64_t from, uint64_t end) const;
  uint64_t bytes() const;
  // The ranges, sorted, with gaps between them.
  const std::vector<ByteRange>& ranges() const { return ranges_; }

  bool operator==(const RangeSet&) const = default;

 private:
  std::vector<ByteRange> ranges_;
};

}  // namespace moestro
