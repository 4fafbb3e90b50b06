// SPDX-License-Identifier: MIT
// Timelines of tokens. A Sequence is a handle on one; the table behind it knows which cells of the
// KV cache hold which positions.
//
// Thread rule: the engine thread.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/batch.h"
#include "core/ids.h"
#include "memory/kv_blocks.h"

namespace moestro {

// What is known of one sequence.
struct Timeline {
  KvTimeline cells;
  std::vector<Token> tokens;  // as many as positions
};

class SequenceTable {
 public:
  explicit SequenceTable(uint32_t n_blocks) : blocks_(n_blocks) {}

  SequenceId New();
  SequenceId Fork(SequenceId id);
  void Drop(SequenceId id);
  // nullptr: there is no such sequence.
  const Timeline* Find(SequenceId id) const;
  std::vector<SequenceId> ids() const;
  const KvBlocks& blocks() const { return blocks_; }
  // True if some sequence has a position.
  bool any_lives() const;

  // Gives the tokens cells after the sequence's last position. kInvalidRequest when blocks run out;
  // nothing has changed then. REQUIRES: id exists.
  Status Append(SequenceId id, std::span<const Token> tokens);
  // REQUIRES: id exists, position is within its length.
  void CutBack(SequenceId id, uint32_t position);

 private:
  KvBlocks blocks_;
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
  // Another sequence of the same tokens. Keys and values are shared, not copied.
  Sequence Fork() const { return {*table_, table_->Fork(id_)}; }
  // Forgets the tokens from `position` on. REQUIRES: position <= this->position().
  void CutBack(uint32_t position) { table_->CutBack(id_, position); }

 private:
  SequenceTable* table_;  // nullptr: moved from
  SequenceId id_;
};

}  // namespace moestro
