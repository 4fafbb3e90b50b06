// SPDX-License-Identifier: MIT
// Timelines of tokens, to which Sequences are handles: the cells of the KV cache that hold a
// sequence's positions, and the places of states in layers that have one.
//
// A state cannot be cut back. So a step writes each sequence's new state beside the old one, and
// Commit() makes it the sequence's; until then CutBack() undoes the step. Where a row is kept, the
// rows after it write to another place. The state before the last step stays until the next one,
// and a checkpoint until it is dropped: Reach() returns the position from which a sequence can go
// on.
//
// Thread rule: the engine thread.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/batch.h"
#include "core/ids.h"
#include "engine/engine.h"
#include "engine/sequence.h"
#include "memory/memory_use.h"
#include "memory/recent_cells.h"

namespace moestro {

// A state after so many tokens.
struct Checkpoint {
  uint32_t position = 0;
  StateSlot state;
};

// Tokens, cells and states of one sequence.
struct Timeline {
  KvTimeline cells;
  RecentTimeline recent;  // cells in layers with a window; empty where these layers have cells of
                          // all positions
  std::vector<Token> tokens;  // one for each position
  // The members below are for layers with a state, and empty in models without one.
  std::optional<Checkpoint> state = {};      // nullopt: no token is computed
  std::optional<StateSlot> next = {};        // written by the last rows of the step under way
  std::vector<Checkpoint> passed = {};       // written by earlier rows of that step, rising
  std::vector<uint32_t> kept_in_step = {};   // positions, rising, up to the tokens' number
  std::optional<Checkpoint> last_step = {};  // before the last step
  std::vector<Checkpoint> checkpoints = {};  // rising positions, up to the state's
  uint64_t used = 0;                         // the table's count of uses at the last one
  bool is_resting = false;                   // the state may be given up as checkpoints are

  uint32_t committed() const { return state ? state->position : 0; }
};

class SequenceTable;

// Sequences as the steps of an engine change them. REQUIRES, of every call: the sequence exists.
class StepSequences : public SequenceOwner {
 public:
  virtual SequenceId New() = 0;
  // Gives the tokens positions, and room for what the step computes of them. On kInvalidRequest,
  // when room runs out, nothing has changed.
  virtual Status Append(SequenceId id, std::span<const Token> tokens) = 0;
  // Within a step: keeps the state at the position that the sequence has by now. REQUIRES: Append()
  // was the last call for the sequence.
  virtual void KeepInStep(SequenceId id) = 0;
  // The tokens have been computed.
  virtual void Commit(SequenceId id) = 0;
  // Forgets the tokens from `position` on, whether they have been computed or not. REQUIRES: that
  // of CutBack(), for tokens that have been.
  virtual void Undo(SequenceId id, uint32_t position) = 0;
  virtual const SequenceTable& table() const = 0;
  virtual Engine::KvRoom room() const = 0;

  // For the rows of a step, in order. On an error of Append() nothing has changed.
  Status Append(const Batch& batch);
  void Commit(const Batch& batch);
  void Undo(const Batch& batch);
};

class SequenceTable final : public StepSequences {
 public:
  // n_states: places for states; 0: no layer has one.
  // source_end: EncoderSpec::source_end; nullopt: the model has no encoder.
  SequenceTable(uint32_t n_blocks, uint32_t n_states, const RecentRoom& recent = {},
                std::optional<Token> source_end = {})
      : blocks_(n_blocks), recent_(recent), states_(n_states), source_end_(source_end) {}

  SequenceId New() override;
  SequenceId Fork(SequenceId id) override;
  void Drop(SequenceId id) override;
  std::span<const Token> TokensOf(SequenceId id) const override { return timelines_.at(id).tokens; }
  // nullptr if no such sequence exists.
  const Timeline* Find(SequenceId id) const;
  std::vector<SequenceId> ids() const;
  const KvBlocks& blocks() const { return blocks_; }
  const StateSlots& states() const { return states_; }
  // Places that steps may take: free places, and places that only checkpoints, states before the
  // last step and resting sequences hold, which give way to a step.
  uint32_t available_states() const;
  // Whether a place can be had by dropping a sequence that rests.
  bool rests_hold_places() const { return !has_states() || recent_.is_used(); }
  // Sequences more that can hold a window.
  uint32_t available_windows() const;
  // The fewer of states and windows; nullopt: no layer has a state or a window of its own.
  std::optional<uint32_t> available_places() const;
  const RecentRoom& recent_room() const { return recent_.room(); }
  Engine::KvRoom room() const override;
  // True if some sequence has a position.
  bool any_lives() const;

  // Gives the tokens cells after the sequence's last position, and a place for the state that the
  // step leaves; other sequences' checkpoints give way if needed. On kInvalidRequest, when blocks
  // or places run out, nothing has changed. REQUIRES: id exists.
  Status Append(SequenceId id, std::span<const Token> tokens) override;
  using StepSequences::Append;
  // Gives cells in layers with a window to those of the first `length` tokens that have none.
  // Positions outside every window are given back. kInvalidRequest when blocks run out. REQUIRES:
  // id exists, and its tokens that have cells are computed, or none are added.
  Status Advance(SequenceId id, uint32_t length);
  // Within a step: gives back cells that no later token attends to. REQUIRES: id exists, and its
  // tokens that have cells are computed.
  void TrimWindow(SequenceId id);
  // Gives the last window of the tokens cells, and as far as cells suffice the windows before the
  // `kept` positions; none of the tokens is computed. kInvalidRequest when blocks run out.
  // REQUIRES: id exists, and has more tokens than each of `kept`.
  Status FillWindows(SequenceId id, std::span<const uint32_t> kept);
  // The tokens have been computed: the new state is the sequence's. REQUIRES: id exists.
  void Commit(SequenceId id) override;
  using StepSequences::Commit;
  // The largest position up to `position` that every layer can go on from. REQUIRES: id exists.
  uint32_t Reach(SequenceId id, uint32_t position) const override;
  // Forgets the tokens from `position` on. REQUIRES: id exists; tokens that are not committed are
  // cut back, or Reach(id, position) == position.
  void CutBack(SequenceId id, uint32_t position) override;
  // Keeps the state as it is now, as long as places suffice. REQUIRES: id exists, and all of its
  // tokens are committed.
  void Keep(SequenceId id) override;
  void KeepInStep(SequenceId id) override;
  void Undo(SequenceId id, uint32_t position) override { CutBack(id, position); }
  using StepSequences::Undo;
  const SequenceTable& table() const override { return *this; }
  // Implements SequenceOwner::Rest(). REQUIRES: id exists, all of its tokens are committed.
  void Rest(SequenceId id) override { timelines_.at(id).is_resting = true; }
  // The places of the state before and after the token at `position`, which the step under way
  // computes. REQUIRES: id exists.
  struct StateIndices {
    std::optional<StateSlot> from;  // nullopt: zeros
    std::optional<StateSlot> to;    // nullopt: no layer has a state
  };
  StateIndices PlacesOf(SequenceId id, uint32_t position) const;
  // Forgets every state and checkpoint, and with them all computed values: the tokens stay and are
  // not committed.
  void LoseStates();

 private:
  bool has_states() const { return states_.size() > 0; }
  std::optional<StateSlot> TakeState(double most_worth = std::numeric_limits<double>::infinity());
  bool ForgetCheckpoint(double most_worth);
  std::vector<double> PlaceWorths() const;
  void PassKept(Timeline& timeline);
  void KeepWindows(Timeline& timeline);
  void UndoStates(Timeline& timeline, uint32_t position);
  void LetGo(std::optional<Checkpoint>& checkpoint);
  void CutBackState(Timeline& timeline, uint32_t position);
  uint32_t StateReach(const Timeline& timeline, uint32_t position) const;
  std::vector<RecentTimeline*> Recents();

  KvBlocks blocks_;
  RecentCells recent_;
  StateSlots states_;
  std::optional<Token> source_end_;
  std::map<SequenceId, Timeline> timelines_;
  uint32_t next_id_ = 0;
  uint64_t uses_ = 0;
};

}  // namespace moestro
