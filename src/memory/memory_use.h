// SPDX-License-Identifier: MIT
// Which memory sequences use: blocks of keys and values, slots of states, and which checkpoints are
// given up first. Pure bookkeeping; memory/layer_values.h holds the values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "core/kv_cells.h"

namespace moestro {

// Maps positions of sequences to blocks of the KV cache. Pure bookkeeping: keys and values lie in
// memory/layer_values.h.
//
// A block is kPositions cells. Position p of a sequence always lies in cell p % kPositions of some
// block. Sequences that were forked share cells; nothing is ever copied: the first fork that goes
// on fills the block further, the other forks go on in a free block or, without one, in free cells
// of another sequence's block. So S sequences of n positions never need more than S times
// BlocksFor(n) blocks, however they share cells and were forked.

using BlockId = Id<struct BlockTag, uint32_t>;

// Positions [begin, end) of a sequence, all in one aligned range of kPositions.
struct KvSpan {
  BlockId block;
  uint32_t begin = 0;
  uint32_t end = 0;
  bool operator==(const KvSpan&) const = default;
};

// One sequence's spans in order of position without gaps, from 0 on or from a later position. A
// plain value; KvBlocks counts the users of its cells, so only KvBlocks changes and ends a
// timeline.
class KvTimeline {
 public:
  KvTimeline() = default;
  // A timeline without cells, whose first cell will hold position `begin`.
  explicit KvTimeline(uint32_t begin) : begin_(begin) {}
  uint32_t begin() const { return begin_; }
  uint32_t length() const { return spans_.empty() ? begin_ : spans_.back().end; }
  // REQUIRES: begin() <= position < length().
  uint32_t cell(uint32_t position) const;
  // The cells of all positions from begin() on in order, neighbours joined.
  std::vector<CellRun> Runs() const;

 private:
  friend class KvBlocks;
  uint32_t begin_ = 0;
  std::vector<KvSpan> spans_;
};

class KvBlocks {
 public:
  static constexpr uint32_t kPositions = 32;

  explicit KvBlocks(uint32_t n_blocks);

  // Blocks that `positions` of one sequence take.
  static uint32_t BlocksFor(uint32_t positions) {
    return (positions + kPositions - 1) / kPositions;
  }

  // Makes the timeline n positions longer. kInvalidRequest when the blocks do not suffice; the
  // timeline is then as before.
  Status Extend(KvTimeline& timeline, uint32_t n);
  // Forgets the positions from `length` on. REQUIRES: begin() <= length <= timeline.length().
  void CutBack(KvTimeline& timeline, uint32_t length);
  // Forgets the positions before `begin`, if any. REQUIRES: begin <= timeline.length().
  void DropBefore(KvTimeline& timeline, uint32_t begin);
  KvTimeline Fork(const KvTimeline& timeline);

  uint32_t blocks() const { return static_cast<uint32_t>(used_.size()); }
  uint32_t free_blocks() const { return static_cast<uint32_t>(free_.size()); }

 private:
  // Up to `most` free cells of a block from `first` on.
  uint32_t FreeCells(BlockId block, uint32_t first, uint32_t most) const;
  // A span for positions from `at` on, up to `most` of them, all in one block; empty if no cell
  // fits.
  KvSpan FindCells(const KvTimeline& timeline, uint32_t at, uint32_t most) const;
  void Take(BlockId block, uint32_t cell);
  void GiveBack(BlockId block, uint32_t cell);

  std::vector<uint32_t> users_;  // [block][cell]: timelines that hold the cell
  std::vector<uint32_t> used_;   // [block]: cells that some timeline holds
  std::vector<BlockId> free_;    // no cell is used; taken from the end
};

// Positions that the sequences of a run may need together.
struct KvDemand {
  uint32_t n_ctx = 0;      // positions of a sequence
  uint32_t sequences = 1;  // at a time
  uint32_t common = 0;     // first positions that all sequences share, because they are forks
  uint32_t positions = 0;  // of all sequences together; 0: as the members above give
};
// Blocks that hold `demand`. kInvalidRequest: more than a cache can hold.
Result<uint32_t> BlocksOf(const KvDemand& demand);

// Keeps track of the places for states that are in use. A place may have several users: sequences
// that were forked, and checkpoints. Pure bookkeeping: the values lie in memory/layer_values.h.

// A place for one state of every layer that has one.
using StateSlot = Id<struct StateSlotTag, uint32_t>;

class StateSlots {
 public:
  explicit StateSlots(uint32_t n_slots);

  // A place with one user; nullopt: all are in use.
  std::optional<StateSlot> Take();
  // One user more, and one less. REQUIRES: the place is in use.
  void Share(StateSlot slot);
  void GiveBack(StateSlot slot);

  bool is_used(StateSlot slot) const { return users_[slot.value] > 0; }
  uint32_t size() const { return static_cast<uint32_t>(users_.size()); }
  uint32_t free() const { return static_cast<uint32_t>(free_.size()); }

 private:
  std::vector<uint32_t> users_;  // [slot]
  std::vector<StateSlot> free_;  // taken from the end
};

// The order in which positions that sequences can go back to are given up. Pure.

// The worth of a checkpoint: the tokens since the one before it, which a return without the
// checkpoint would evaluate again. `newer` counts sequences used later; each makes a return less
// likely.
inline double CheckpointWorth(uint32_t tokens, uint32_t newer) {
  return static_cast<double>(tokens) / (1.0 + newer);
}

// The positions whose states or windows a text's file has, a few of `positions`: the last one, and
// those with the most tokens behind the one before. Both are rising.
std::vector<uint32_t> PositionsWorthSaving(std::span<const uint32_t> positions);

}  // namespace moestro
