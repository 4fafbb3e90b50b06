// SPDX-License-Identifier: MIT
// Cells of layers with a window. Such a layer attends to the last positions of a sequence alone, so
// cells of earlier positions are given back and used again: a few cells for each sequence, however
// long the sequence is.
//
// A sequence can go on from a position if the window before that position is held. Held are the
// positions that the last step began with and those that it added; and a window before each kept
// position, until other sequences need the cells. Pure bookkeeping, as memory/memory_use.h, which
// counts the users of each cell.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "memory/memory_use.h"

namespace moestro {

// Numbers of cells and their uses.
struct RecentRoom {
  uint32_t window = 0;  // positions that a layer attends to, at most; 0: no layer has such cells
  uint32_t places = 0;  // sequences that hold a window
  uint32_t blocks = 0;

  // Held positions begin at a multiple of this, as blocks of keys in attention do.
  static constexpr uint32_t kAlignment = 64;

  // For `sequences` in steps at a time of up to `chunk` rows together, and as many kept ones as a
  // state has places. REQUIRES: window > 0.
  static RecentRoom Of(uint32_t window, uint32_t sequences, uint32_t chunk);
  uint32_t cells() const { return blocks * KvBlocks::kPositions; }
  // The first held position when the sequence has `length` positions.
  uint32_t FirstOf(uint32_t length) const;
};

// The windows that one sequence holds.
struct RecentTimeline {
  KvTimeline now;                         // the window, and positions that the last step added
  std::optional<KvTimeline> before = {};  // `now` before the last step
  std::vector<KvTimeline> kept = {};      // windows before kept positions, rising
  uint32_t done = 0;                      // positions of steps that have ended
  uint64_t used = 0;                      // like Timeline::used
};

class RecentCells {
 public:
  explicit RecentCells(const RecentRoom& room) : room_(room), blocks_(room.blocks) {}
  bool is_used() const { return room_.window > 0; }
  const RecentRoom& room() const { return room_; }

  // Gives cells to the positions up to `length` that have none; the first call after a Commit()
  // that gives some begins a step. If cells run out, other timelines of `all` give up kept
  // positions, those worth least first. kInvalidRequest.
  Status Advance(RecentTimeline& timeline, uint32_t length,
                 const std::vector<RecentTimeline*>& all);
  // Within a step: gives back cells that no later position attends to. REQUIRES: all positions that
  // have cells are computed.
  void Trim(RecentTimeline& timeline);
  // Gives cells to the last of `length` positions, none of which is computed. REQUIRES: the
  // timeline is new. kInvalidRequest.
  Status Fill(RecentTimeline& timeline, uint32_t length, const std::vector<RecentTimeline*>& all);
  // Gives cells to the window before an earlier position, none of which is computed, and keeps the
  // position; without free cells it is not kept. REQUIRES: Fill() with more positions.
  void FillKept(RecentTimeline& timeline, uint32_t position);
  // The step has ended with `length` positions.
  void Commit(RecentTimeline& timeline, uint32_t length);
  // The largest position up to `position` before which a window is held.
  uint32_t Reach(const RecentTimeline& timeline, uint32_t position) const;
  // Forgets positions from `position` on. REQUIRES: the step that added these positions has not
  // ended, or Reach(timeline, position) == position.
  void CutBack(RecentTimeline& timeline, uint32_t position);
  // Keeps the window before a position, if the timeline holds that window.
  void Keep(RecentTimeline& timeline, uint32_t position);
  // A copy that reaches the same positions. REQUIRES: no step of the timeline is under way.
  RecentTimeline Fork(const RecentTimeline& timeline);
  void Drop(RecentTimeline& timeline);

 private:
  bool Holds(const KvTimeline& held, uint32_t position) const;
  void Release(KvTimeline& held) { blocks_.CutBack(held, held.begin()); }
  bool GiveUpOne(const std::vector<RecentTimeline*>& all, const RecentTimeline& but);
  Status Extend(RecentTimeline& timeline, uint32_t n, const std::vector<RecentTimeline*>& all);

  RecentRoom room_;
  KvBlocks blocks_;
};

}  // namespace moestro
