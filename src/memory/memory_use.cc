// SPDX-License-Identifier: MIT
#include "memory/memory_use.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <span>
#include <utility>

#include "base/result.h"

namespace moestro {
namespace {

constexpr uint32_t kPositions = KvBlocks::kPositions;

uint32_t CellOf(const KvSpan& span, uint32_t position) {
  return span.block.value * kPositions + position % kPositions;
}

}  // namespace

uint32_t KvTimeline::cell(uint32_t position) const {
  const auto span = std::ranges::upper_bound(spans_, position, {}, &KvSpan::end);
  CHECK(span != spans_.end() && span->begin <= position);
  return CellOf(*span, position);
}

std::vector<CellRun> KvTimeline::Runs() const {
  std::vector<CellRun> runs;
  for (const KvSpan& span : spans_) {
    const uint32_t first = CellOf(span, span.begin);
    const uint32_t count = span.end - span.begin;
    if (!runs.empty() && runs.back().first + runs.back().count == first) {
      runs.back().count += count;
    } else {
      runs.push_back({.first = first, .count = count});
    }
  }
  return runs;
}

KvBlocks::KvBlocks(uint32_t n_blocks) : users_(size_t{n_blocks} * kPositions), used_(n_blocks) {
  free_.reserve(n_blocks);
  for (uint32_t i = n_blocks; i > 0; --i) free_.push_back(BlockId{i - 1});
}

void KvBlocks::Take(BlockId block, uint32_t cell) {
  if (users_[size_t{block.value} * kPositions + cell]++ == 0) ++used_[block.value];
}

void KvBlocks::GiveBack(BlockId block, uint32_t cell) {
  uint32_t& users = users_[size_t{block.value} * kPositions + cell];
  CHECK(users > 0);
  if (--users == 0 && --used_[block.value] == 0) free_.push_back(block);
}

uint32_t KvBlocks::FreeCells(BlockId block, uint32_t first, uint32_t most) const {
  const auto users = std::span(users_).subspan(size_t{block.value} * kPositions + first, most);
  return static_cast<uint32_t>(std::ranges::find_if(users, [](uint32_t n) { return n > 0; }) -
                               users.begin());
}

// Prefers the timeline's own block, so that its cells stay together, then a free block, then free
// cells of any block.
KvSpan KvBlocks::FindCells(const KvTimeline& timeline, uint32_t at, uint32_t most) const {
  const uint32_t first = at % kPositions;
  if (first > 0 && !timeline.spans_.empty()) {
    const BlockId last = timeline.spans_.back().block;
    const uint32_t n = FreeCells(last, first, most);
    if (n > 0) return {.block = last, .begin = at, .end = at + n};
  }
  if (!free_.empty()) return {.block = free_.back(), .begin = at, .end = at + most};
  for (uint32_t b = 0; b < blocks(); ++b) {
    const uint32_t n = FreeCells(BlockId{b}, first, most);
    if (n > 0) return {.block = BlockId{b}, .begin = at, .end = at + n};
  }
  return {.block = {}, .begin = at, .end = at};
}

Status KvBlocks::Extend(KvTimeline& timeline, uint32_t n) {
  const uint32_t before = timeline.length();
  std::vector<KvSpan>& spans = timeline.spans_;
  for (uint32_t left = n; left > 0;) {
    const uint32_t at = timeline.length();
    const KvSpan found = FindCells(timeline, at, std::min(left, kPositions - at % kPositions));
    if (found.begin == found.end) {
      CutBack(timeline, before);
      return Fail(Errc::kInvalidRequest,
                  "all {} blocks of the KV cache are in use; drop a sequence, or open the model "
                  "for more sequences or a longer context",
                  blocks());
    }
    if (!free_.empty() && free_.back() == found.block) free_.pop_back();
    for (uint32_t p = found.begin; p < found.end; ++p) Take(found.block, p % kPositions);
    const bool goes_on = at % kPositions > 0 && !spans.empty() && spans.back().block == found.block;
    if (goes_on) {
      spans.back().end = found.end;
    } else {
      spans.push_back(found);
    }
    left -= found.end - found.begin;
  }
  return {};
}

void KvBlocks::CutBack(KvTimeline& timeline, uint32_t length) {
  CHECK(timeline.begin() <= length && length <= timeline.length());
  std::vector<KvSpan>& spans = timeline.spans_;
  while (timeline.length() > length) {
    KvSpan& last = spans.back();
    const uint32_t end = std::max(length, last.begin);
    for (uint32_t p = end; p < last.end; ++p) GiveBack(last.block, p % kPositions);
    last.end = end;
    if (last.begin == last.end) spans.pop_back();
  }
}

void KvBlocks::DropBefore(KvTimeline& timeline, uint32_t begin) {
  CHECK(begin <= timeline.length());
  if (begin <= timeline.begin_) return;
  std::vector<KvSpan>& spans = timeline.spans_;
  size_t gone = 0;
  for (KvSpan& span : spans) {
    const uint32_t end = std::min(begin, span.end);
    for (uint32_t p = span.begin; p < end; ++p) GiveBack(span.block, p % kPositions);
    if (end < span.end) {
      span.begin = std::max(span.begin, end);
      break;
    }
    ++gone;
  }
  spans.erase(spans.begin(), spans.begin() + static_cast<std::ptrdiff_t>(gone));
  timeline.begin_ = begin;
}

KvTimeline KvBlocks::Fork(const KvTimeline& timeline) {
  for (const KvSpan& span : timeline.spans_) {
    for (uint32_t p = span.begin; p < span.end; ++p) Take(span.block, p % kPositions);
  }
  return timeline;
}

Result<uint32_t> BlocksOf(const KvDemand& demand) {
  const uint32_t common = std::min(demand.common, demand.n_ctx);
  const uint64_t n_blocks =
      demand.positions > 0
          ? KvBlocks::BlocksFor(std::max(demand.positions, demand.n_ctx))
          : KvBlocks::BlocksFor(common) +
                uint64_t{KvBlocks::BlocksFor(demand.n_ctx - common)} * demand.sequences;
  if (n_blocks * KvBlocks::kPositions > std::numeric_limits<int32_t>::max()) {
    return Fail(Errc::kInvalidRequest,
                "{} sequences of {} tokens are more than a KV cache can hold", demand.sequences,
                demand.n_ctx);
  }
  return static_cast<uint32_t>(n_blocks);
}

StateSlots::StateSlots(uint32_t n_slots) : users_(n_slots) {
  for (uint32_t s = n_slots; s > 0; --s) free_.push_back({s - 1});
}

std::optional<StateSlot> StateSlots::Take() {
  if (free_.empty()) return std::nullopt;
  const StateSlot slot = free_.back();
  free_.pop_back();
  users_[slot.value] = 1;
  return slot;
}

void StateSlots::Share(StateSlot slot) {
  CHECK(users_[slot.value] > 0);
  ++users_[slot.value];
}

void StateSlots::GiveBack(StateSlot slot) {
  CHECK(users_[slot.value] > 0);
  if (--users_[slot.value] == 0) free_.push_back(slot);
}

std::vector<uint32_t> PositionsWorthSaving(std::span<const uint32_t> positions) {
  constexpr size_t kMost = 4;  // each may be 60 MiB
  std::vector<std::pair<double, uint32_t>> all;
  uint32_t before = 0;
  for (const uint32_t position : positions) {
    all.emplace_back(CheckpointWorth(position - before, 0), position);
    before = position;
  }
  if (!all.empty()) all.back().first = std::numeric_limits<double>::infinity();
  const size_t n = std::min(all.size(), kMost);
  std::ranges::stable_sort(all, std::greater(), [](const auto& c) { return c.first; });
  std::vector<uint32_t> saved;
  for (const auto& [worth, position] : std::span(all).first(n)) saved.push_back(position);
  std::ranges::sort(saved);
  return saved;
}

}  // namespace moestro
