// SPDX-License-Identifier: MIT
#include "devices/pair_lists.h"

#include <algorithm>

#include "base/bytes.h"

namespace moestro {
namespace {

// The begin of the next list, aligned for every device.
size_t Aligned(size_t numbers) { return AlignUp(numbers, 64); }

}  // namespace

void PairLists::Assign(const DevicePools& pools, uint32_t form,
                       std::span<const Transport::Pair> pairs) {
  const auto piece_of = [&](const Transport::Pair& pair) {
    return pools.Find(form, pair.slot).piece;
  };
  pairs_.assign(pairs.begin(), pairs.end());
  std::ranges::stable_sort(pairs_, {}, piece_of);
  parts_.clear();
  numbers_.clear();
  for (size_t i = 0; i < pairs_.size(); ++i) {
    const size_t piece = piece_of(pairs_[i]);
    if (parts_.empty() || parts_.back().piece != piece) {
      parts_.push_back({.piece = piece, .first = i});
    }
    ++parts_.back().n;
  }
  for (Part& part : parts_) {
    part.slots_at = numbers_.size();
    part.experts_at = part.slots_at + Aligned(part.n);
    Append(part, pools, form);
  }
  rows_at_ = numbers_.size();
  for (const Transport::Pair& pair : pairs_) numbers_.push_back(static_cast<int32_t>(pair.row));
  numbers_.resize(Aligned(numbers_.size()));
}

void PairLists::Append(const Part& part, const DevicePools& pools, uint32_t form) {
  const auto its = std::span(pairs_).subspan(part.first, part.n);
  for (const Transport::Pair& pair : its) {
    numbers_.push_back(static_cast<int32_t>(pools.Find(form, pair.slot).slot));
  }
  numbers_.resize(part.experts_at);
  for (const Transport::Pair& pair : its) numbers_.push_back(pair.expert.value);
  numbers_.resize(part.experts_at + Aligned(part.n));
}

}  // namespace moestro
