// SPDX-License-Identifier: MIT
#include "hub/range_set.h"

#include <algorithm>

namespace moestro {

void RangeSet::Add(ByteRange range) {
  if (range.begin >= range.end) return;
  // [first, last) are the ranges that touch the new one.
  const auto first = std::ranges::lower_bound(ranges_, range.begin, {}, &ByteRange::end);
  const auto last =
      std::ranges::upper_bound(first, ranges_.end(), range.end, {}, &ByteRange::begin);
  if (first != last) {
    range.begin = std::min(range.begin, first->begin);
    range.end = std::max(range.end, std::prev(last)->end);
  }
  ranges_.insert(ranges_.erase(first, last), range);
}

uint64_t RangeSet::FirstMissing(uint64_t from) const {
  const auto at = std::ranges::upper_bound(ranges_, from, {}, &ByteRange::end);
  return at != ranges_.end() && at->begin <= from ? at->end : from;
}

std::optional<ByteRange> RangeSet::FirstGap(uint64_t from, uint64_t end) const {
  const uint64_t begin = FirstMissing(from);
  if (begin >= end) return std::nullopt;
  const auto next = std::ranges::lower_bound(ranges_, begin, {}, &ByteRange::begin);
  return ByteRange{.begin = begin, .end = next != ranges_.end() ? std::min(next->begin, end) : end};
}

uint64_t RangeSet::bytes() const {
  uint64_t sum = 0;
  for (const ByteRange& range : ranges_) sum += range.size();
  return sum;
}

}  // namespace moestro
