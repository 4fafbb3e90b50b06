// SPDX-License-Identifier: MIT
#include "memory/recent_cells.h"

#include <algorithm>
#include <utility>

#include "base/number.h"
#include "base/result.h"
#include "memory/memory_use.h"

namespace moestro {
namespace {

// Positions that a sequence can be cut back by after a step of a prompt.
constexpr uint32_t kSlack = 64;

}  // namespace

RecentRoom RecentRoom::Of(uint32_t window, uint32_t sequences, uint32_t chunk) {
  RecentRoom room{.window = window, .places = 4 * sequences + 2};
  const uint32_t of_one = KvBlocks::BlocksFor(window + kAlignment + kSlack);
  // During a step a sequence holds the window that the step began with, too.
  const uint64_t blocks =
      uint64_t{room.places + sequences} * of_one + KvBlocks::BlocksFor(chunk) + sequences;
  room.blocks = static_cast<uint32_t>(std::min<uint64_t>(blocks, UINT32_MAX / kAlignment));
  return room;
}

uint32_t RecentRoom::FirstOf(uint32_t length) const {
  const uint32_t unseen = length - std::min(length, window - 1);
  return static_cast<uint32_t>(AlignDown(unseen, kAlignment));
}

bool RecentCells::Holds(const KvTimeline& held, uint32_t position) const {
  if (position > held.length()) return false;
  return position == 0 || held.begin() == 0 || held.begin() + room_.window - 1 <= position;
}

// Gives up one window: the least worthy kept position (memory/memory_use.h), or else the
// window before another sequence's last step.
bool RecentCells::GiveUpOne(const std::vector<RecentTimeline*>& all, const RecentTimeline& but) {
  RecentTimeline* holder = nullptr;
  size_t which = 0;
  double least = 0.0;
  for (RecentTimeline* timeline : all) {
    const auto newer = static_cast<uint32_t>(std::ranges::count_if(
        all, [&](const RecentTimeline* other) { return other->used > timeline->used; }));
    uint32_t before = 0;
    for (size_t i = 0; i < timeline->kept.size(); ++i) {
      const uint32_t position = timeline->kept[i].length();
      const double worth = CheckpointWorth(position - before, newer);
      before = position;
      if (holder != nullptr && worth >= least) continue;
      holder = timeline;
      which = i;
      least = worth;
    }
  }
  if (holder != nullptr) {
    Release(holder->kept[which]);
    holder->kept.erase(holder->kept.begin() + static_cast<std::ptrdiff_t>(which));
    return true;
  }
  for (RecentTimeline* timeline : all) {
    const bool is_in_step = timeline->now.length() != timeline->done;
    if (timeline == &but || is_in_step || !timeline->before) continue;
    Release(*timeline->before);
    timeline->before.reset();
    return true;
  }
  return false;
}

Status RecentCells::Extend(RecentTimeline& timeline, uint32_t n,
                           const std::vector<RecentTimeline*>& all) {
  for (;;) {
    Status extended = blocks_.Extend(timeline.now, n);
    if (extended || !GiveUpOne(all, timeline)) return extended;
  }
}

Status RecentCells::Advance(RecentTimeline& timeline, uint32_t length,
                            const std::vector<RecentTimeline*>& all) {
  if (length <= timeline.now.length()) return {};  // rows that are computed again
  if (timeline.now.length() == timeline.done) {
    if (timeline.before) Release(*timeline.before);
    timeline.before = blocks_.Fork(timeline.now);
  }
  Trim(timeline);
  return Extend(timeline, length - timeline.now.length(), all);
}

// Gives back cells before the window. The window begins up to kSlack positions earlier than the
// length needs, as far as the step has added so many: an ended step may be cut back a little.
void RecentCells::Trim(RecentTimeline& timeline) {
  const uint32_t length = timeline.now.length();
  const uint32_t added = length - timeline.done;
  blocks_.DropBefore(timeline.now, room_.FirstOf(length - std::min(added, kSlack)));
}

Status RecentCells::Fill(RecentTimeline& timeline, uint32_t length,
                         const std::vector<RecentTimeline*>& all) {
  CHECK(timeline.now.length() == 0);
  const uint32_t first = room_.FirstOf(length);
  timeline.now = KvTimeline(first);
  timeline.before = KvTimeline();
  const Status extended = Extend(timeline, length - first, all);
  if (!extended) timeline = {};
  return extended;
}

void RecentCells::FillKept(RecentTimeline& timeline, uint32_t position) {
  const uint32_t first = room_.FirstOf(position);
  KvTimeline kept(first);
  if (!blocks_.Extend(kept, position - first)) return;
  const auto after = std::ranges::lower_bound(timeline.kept, position, {}, &KvTimeline::length);
  timeline.kept.insert(after, std::move(kept));
}

void RecentCells::Commit(RecentTimeline& timeline, uint32_t length) {
  CHECK(timeline.now.length() == length);
  if (length == timeline.done) return;  // an earlier row of the step has committed this length
  Trim(timeline);  // a prompt's last rows would hold a chunk more until the next step
  timeline.done = length;
}

uint32_t RecentCells::Reach(const RecentTimeline& timeline, uint32_t position) const {
  uint32_t reached = 0;
  const auto look = [&](const KvTimeline& held) {
    const uint32_t at = std::min(position, held.length());
    if (Holds(held, at)) reached = std::max(reached, at);
  };
  look(timeline.now);
  if (timeline.before) look(*timeline.before);
  std::ranges::for_each(timeline.kept, look);
  return reached;
}

void RecentCells::CutBack(RecentTimeline& timeline, uint32_t position) {
  const bool is_in_step = timeline.now.length() != timeline.done;
  if (position > timeline.done || (position == timeline.done && !is_in_step)) return;
  if (position < timeline.done || !timeline.before) {
    CHECK(Reach(timeline, position) == position);
  }
  // Within a step `now` need not hold the window whole, so the source is `before`, from which the
  // step began, or a kept window.
  KvTimeline found;
  const KvTimeline* source = nullptr;
  if (!is_in_step && Holds(timeline.now, position)) source = &timeline.now;
  if (timeline.before && Holds(*timeline.before, position)) source = &*timeline.before;
  for (const KvTimeline& kept : timeline.kept) {
    if (source == nullptr && Holds(kept, position)) source = &kept;
  }
  CHECK(source != nullptr || position == 0);
  if (position > 0) {
    found = blocks_.Fork(*source);
    blocks_.CutBack(found, position);
  }
  Release(timeline.now);
  timeline.now = std::move(found);
  timeline.done = position;
  if (timeline.before && timeline.before->length() >= position) {
    Release(*timeline.before);
    timeline.before.reset();
  }
  std::erase_if(timeline.kept, [&](KvTimeline& kept) {
    if (kept.length() <= position) return false;
    Release(kept);
    return true;
  });
}

void RecentCells::Keep(RecentTimeline& timeline, uint32_t position) {
  const auto after = std::ranges::lower_bound(timeline.kept, position, {}, &KvTimeline::length);
  const bool is_kept = after != timeline.kept.end() && after->length() == position;
  if (is_kept || position == 0 || !Holds(timeline.now, position)) return;
  KvTimeline kept = blocks_.Fork(timeline.now);
  blocks_.CutBack(kept, position);
  blocks_.DropBefore(kept, room_.FirstOf(position));
  timeline.kept.insert(after, std::move(kept));
}

RecentTimeline RecentCells::Fork(const RecentTimeline& timeline) {
  CHECK(timeline.now.length() == timeline.done);
  RecentTimeline copy{
      .now = blocks_.Fork(timeline.now), .done = timeline.done, .used = timeline.used};
  if (timeline.before) copy.before = blocks_.Fork(*timeline.before);
  for (const KvTimeline& kept : timeline.kept) copy.kept.push_back(blocks_.Fork(kept));
  return copy;
}

void RecentCells::Drop(RecentTimeline& timeline) {
  Release(timeline.now);
  if (timeline.before) Release(*timeline.before);
  for (KvTimeline& kept : timeline.kept) Release(kept);
  timeline = {};
}

}  // namespace moestro
