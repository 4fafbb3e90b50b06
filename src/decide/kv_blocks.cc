// SPDX-License-Identifier: MIT
#include "decide/kv_blocks.h"

#include <algorithm>

#include "base/check.h"

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

KvBlocks::KvBlocks(uint32_t n_blocks) : blocks_(n_blocks) {
  free_.reserve(n_blocks);
  for (uint32_t i = n_blocks; i > 0; --i) free_.push_back(BlockId{i - 1});
}

// Cells behind the last position are free for the sequence if nobody has been given them, or nobody
// else looks at the block.
bool KvBlocks::ExtendInPlace(KvSpan& last, uint32_t n) {
  Block& block = blocks_[last.block.value];
  const uint32_t used = last.end % kPositions;
  if (used == 0 || (block.filled != used && block.users > 1)) return false;
  last.end += n;
  block.filled = used + n;
  return true;
}

Status KvBlocks::Extend(KvTimeline& timeline, uint32_t n) {
  const uint32_t before = timeline.length();
  for (uint32_t left = n; left > 0;) {
    const uint32_t at = timeline.length();
    const uint32_t part = std::min(left, kPositions - at % kPositions);
    if (timeline.spans_.empty() || !ExtendInPlace(timeline.spans_.back(), part)) {
      if (free_.empty()) {
        CutBack(timeline, before);
        return Fail(Errc::kInvalidRequest,
                    "all {} blocks of the KV cache are in use; drop a sequence, or open the model "
                    "for more sequences or a longer context",
                    blocks());
      }
      const BlockId block = free_.back();
      free_.pop_back();
      blocks_[block.value] = {.users = 1, .filled = at % kPositions + part};
      timeline.spans_.push_back({.block = block, .begin = at, .end = at + part});
    }
    left -= part;
  }
  return {};
}

void KvBlocks::CutBack(KvTimeline& timeline, uint32_t length) {
  CHECK(length <= timeline.length());
  std::vector<KvSpan>& spans = timeline.spans_;
  while (!spans.empty() && spans.back().begin >= length) {
    Block& block = blocks_[spans.back().block.value];
    CHECK(block.users > 0);
    if (--block.users == 0) free_.push_back(spans.back().block);
    spans.pop_back();
  }
  if (!spans.empty()) spans.back().end = std::min(spans.back().end, length);
}

KvTimeline KvBlocks::Fork(const KvTimeline& timeline) {
  for (const KvSpan& span : timeline.spans_) ++blocks_[span.block.value].users;
  return timeline;
}

}  // namespace moestro
