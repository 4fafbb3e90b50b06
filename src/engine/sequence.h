// SPDX-License-Identifier: MIT
// A handle on a timeline of tokens, and facts about one that is saved.
//
// Thread rule: the engine thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/batch.h"
#include "core/ids.h"

namespace moestro {

// A Sequence is a handle on a timeline of tokens that an engine remembers.

// Operations of an engine on its sequences. Implementations: SequenceTable (native), the hosted
// engine. REQUIRES, of every call: the sequence exists.
class SequenceOwner {
 public:
  virtual ~SequenceOwner() = default;
  virtual SequenceId Fork(SequenceId id) = 0;
  virtual void Drop(SequenceId id) = 0;
  // All tokens, valid until the sequence changes.
  virtual std::span<const Token> TokensOf(SequenceId id) const = 0;
  // The largest position up to `position` that every layer can go on from.
  virtual uint32_t Reach(SequenceId id, uint32_t position) const = 0;
  // Forgets the tokens from `position` on. REQUIRES: Reach(id, position) == position.
  virtual void CutBack(SequenceId id, uint32_t position) = 0;
  // Keeps the state as it is now, as long as places suffice.
  virtual void Keep(SequenceId id) = 0;
  // The sequence rests: until its next step, it may be cut back to an earlier kept position for
  // others.
  virtual void Rest(SequenceId id) = 0;
};

// Move-only; destruction drops the sequence. The engine that made it must outlive it.
class Sequence {
 public:
  Sequence(SequenceOwner& owner, SequenceId id) : owner_(&owner), id_(id) {}
  Sequence(Sequence&& other) noexcept
      : owner_(std::exchange(other.owner_, nullptr)), id_(other.id_) {}
  Sequence& operator=(Sequence&& other) noexcept {
    std::swap(owner_, other.owner_);
    std::swap(id_, other.id_);
    return *this;
  }
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;
  ~Sequence() {
    if (owner_ != nullptr) owner_->Drop(id_);
  }

  SequenceId id() const { return id_; }
  // All tokens, valid until the sequence changes.
  std::span<const Token> tokens() const { return owner_->TokensOf(id_); }
  // The position of the next token. This is also the number of tokens.
  uint32_t position() const { return static_cast<uint32_t>(tokens().size()); }
  // Another sequence of the same tokens. Keys and values are shared, not copied, and so are states
  // until one of the two goes on.
  Sequence Fork() const { return {*owner_, owner_->Fork(id_)}; }
  // The largest position up to `position` that every layer of the model can go on from: all
  // positions where layers remember keys and values, some where they have a state. Tokens after it
  // are evaluated again. REQUIRES: position <= this->position().
  uint32_t Reach(uint32_t position) const { return owner_->Reach(id_, position); }
  // Forgets the tokens from `position` on. REQUIRES: Reach(position) == position.
  void CutBack(uint32_t position) { owner_->CutBack(id_, position); }
  // Goes back to Reach(position) and returns it.
  uint32_t GoBack(uint32_t position) {
    const uint32_t reached = Reach(position);
    CutBack(reached);
    return reached;
  }
  // A later Reach() may return this position: the state of the layers, if they have one, is kept
  // while there is room.
  void Keep() { owner_->Keep(id_); }
  // The sequence is not about to go on. If other sequences run out of room for their states, it may
  // be cut back to a position that Reach() can return. Ends with the next step of the sequence.
  void Rest() { owner_->Rest(id_); }

 private:
  SequenceOwner* owner_;  // nullptr: moved from
  SequenceId id_;
};

// Facts about a sequence that is saved in a file.

// The model, weights and choices that keys, values and states belong to; docs/sequence-format.md
// lists the choices that count.
struct KvOrigin {
  uint64_t model = 0;    // fingerprint of the header
  uint64_t weights = 0;  // model/weights_id.h
  std::string choices;   // KvChoices::text()
  bool operator==(const KvOrigin&) const = default;
};

// A saved text, without its keys and values.
struct SavedTokens {
  std::vector<Token> tokens;
  std::string notes;
  // Positions before the end that the text can go on from, too, where layers have a state; rising.
  std::vector<uint32_t> checkpoints = {};
};

// A sequence that came from a file.
struct SavedSequence {
  Sequence sequence;
  std::string notes;
};

}  // namespace moestro
