// SPDX-License-Identifier: MIT
// Timelines of tokens. A Sequence is a handle on one; the table behind it knows which cells of the
// KV cache hold which positions, and where the states of layers that have one lie.
//
// A state cannot be cut back. So a step writes each sequence's new state beside the old one, and
// Commit() makes it the sequence's; until then CutBack() undoes the step. The state before the last
// step stays until the next one, and a checkpoint until it is dropped: Reach() says which positions
// a sequence can go on from.
//
// Thread rule: the engine thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/batch.h"
#include "core/ids.h"
#include "memory/kv_blocks.h"
#include "memory/state_slots.h"

namespace moestro {

// A state after so many tokens.
struct Checkpoint {
  uint32_t position = 0;
  StateSlot state;
};

// What is known of one sequence.
struct Timeline {
  KvTimeline cells;
  std::vector<Token> tokens;  // as many as positions
  // Of layers with a state; all empty where no layer has one.
  std::optional<Checkpoint> state = {};      // nullopt: of no token
  std::optional<StateSlot> next = {};        // that the step under way writes
  std::optional<Checkpoint> last_step = {};  // before the last step
  std::vector<Checkpoint> checkpoints = {};  // rising positions, up to the state's

  uint32_t committed() const { return state ? state->position : 0; }
};

class SequenceTable {
 public:
  // n_states: places for states; 0: no layer has one.
  SequenceTable(uint32_t n_blocks, uint32_t n_states) : blocks_(n_blocks), states_(n_states) {}

  SequenceId New();
  SequenceId Fork(SequenceId id);
  void Drop(SequenceId id);
  // nullptr: there is no such sequence.
  const Timeline* Find(SequenceId id) const;
  std::vector<SequenceId> ids() const;
  const KvBlocks& blocks() const { return blocks_; }
  const StateSlots& states() const { return states_; }
  // True if some sequence has a position.
  bool any_lives() const;

  // Gives the tokens cells after the sequence's last position, and a place for the state that the
  // step leaves; other sequences' checkpoints go for that if they must. kInvalidRequest when blocks
  // or places run out; nothing has changed then. REQUIRES: id exists.
  Status Append(SequenceId id, std::span<const Token> tokens);
  // The tokens have been computed: the new state is the sequence's. REQUIRES: id exists.
  void Commit(SequenceId id);
  // The largest position up to `position` that every layer can go on from. REQUIRES: id exists.
  uint32_t Reach(SequenceId id, uint32_t position) const;
  // Forgets the tokens from `position` on. REQUIRES: id exists; tokens that are not committed are
  // cut back, or Reach(id, position) == position.
  void CutBack(SequenceId id, uint32_t position);
  // Keeps the state as it is now, as long as places suffice. REQUIRES: id exists, all of its tokens
  // are committed.
  void Keep(SequenceId id);
  // Every state and checkpoint is gone, and with them what was computed: the tokens stay and are
  // not committed.
  void LoseStates();

 private:
  bool has_states() const { return states_.size() > 0; }
  std::optional<StateSlot> TakeState();
  void LetGo(std::optional<Checkpoint>& checkpoint);
  void CutBackState(Timeline& timeline, uint32_t position);

  KvBlocks blocks_;
  StateSlots states_;
  std::map<SequenceId, Timeline> timelines_;
  uint32_t next_id_ = 0;
};

// Move-only; destruction drops the sequence. The engine that made it must outlive it.
class Sequence {
 public:
  Sequence(SequenceTable& table, SequenceId id) : table_(&table), id_(id) {}
  Sequence(Sequence&& other) noexcept;
  Sequence& operator=(Sequence&& other) noexcept;
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;
  ~Sequence();

  SequenceId id() const { return id_; }
  uint32_t position() const;  // the next token's, so also the number of tokens
  // All tokens, valid until the sequence changes.
  std::span<const Token> tokens() const;
  // Another sequence of the same tokens. Keys and values are shared, not copied, and so are states
  // until one of the two goes on.
  Sequence Fork() const { return {*table_, table_->Fork(id_)}; }
  // The largest position up to `position` that every layer of the model can go on from: all
  // positions where layers remember keys and values, some where they have a state. What lies
  // between is evaluated again. REQUIRES: position <= this->position().
  uint32_t Reach(uint32_t position) const { return table_->Reach(id_, position); }
  // Forgets the tokens from `position` on. REQUIRES: Reach(position) == position.
  void CutBack(uint32_t position) { table_->CutBack(id_, position); }
  // Goes back to Reach(position) and returns it.
  uint32_t GoBack(uint32_t position);
  // A later Reach() may end here: where layers have a state, it is kept while there is room.
  void Keep() { table_->Keep(id_); }

 private:
  SequenceTable* table_;  // nullptr: moved from
  SequenceId id_;
};

}  // namespace moestro
