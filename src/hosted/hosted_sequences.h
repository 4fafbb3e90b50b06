// SPDX-License-Identifier: MIT
// Sequences of the hosted engine, in libllama's memory.
//
// Thread rule: the engine thread.
#pragma once

#include <llama.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/batch.h"
#include "engine/engine.h"
#include "engine/sequence.h"
#include "memory/sequence.h"

namespace moestro {

// Bytes of what libllama remembers of a sequence.
struct HostedMemory {
  // Only the states after so many tokens, or the windows before so many.
  struct Part {
    uint32_t position = 0;
    std::string bytes;
  };
  // Cells of all positions, of windows those of the last positions, and the last states.
  std::string whole;
  // At rising positions before the end: where layers have states, of kept positions; where layers
  // have windows alone, windows side by side, so that all positions are covered.
  std::vector<Part> parts;
};

// Properties of libllama's memory of a model.
struct MemoryTraits {
  uint32_t n_places = 0;  // libllama's sequences
  // Whether a layer has a state, which cannot be cut back.
  bool has_states = false;
  // Whether libllama copies states only when it computes next.
  bool copies_late = false;
  // Positions of a window, the token's own included; 0: no layer has one.
  uint32_t n_window = 0;
};

// Sequences in libllama's memory. memory/sequence.h keeps the tables, as for the native engine.
// This class carries them out in one of two ways:
//
//   cells alone    a sequence has a sequence of libllama's, which is cut back to any position;
//   with a state   a place for a state is a sequence of libllama's. A step copies the sequence's
//                  place to a new one and writes there, so that the old state stays until the
//                  step is committed, and a failed step is undone by forgetting its place.
//
// Copies share cells and, until one copy goes on, states.

class HostedSequences final : public StepSequences {
 public:
  // The context must outlive this.
  HostedSequences(llama_context* context, const MemoryTraits& traits, uint32_t n_blocks);

  SequenceId New() override { return table_.New(); }
  SequenceId Fork(SequenceId id) override;
  void Drop(SequenceId id) override;
  std::span<const Token> TokensOf(SequenceId id) const override { return table_.TokensOf(id); }
  uint32_t Reach(SequenceId id, uint32_t position) const override;
  void CutBack(SequenceId id, uint32_t position) override;
  void Keep(SequenceId id) override { table_.Keep(id); }
  void Rest(SequenceId id) override { table_.Rest(id); }

  const SequenceTable& table() const override { return table_; }
  Engine::KvRoom room() const override;

  // Gives each sequence a place to write to, too. kInvalidRequest: cells or places run out.
  Status Append(SequenceId id, std::span<const Token> tokens) override;
  using StepSequences::Append;
  void KeepInStep(SequenceId id) override { table_.KeepInStep(id); }
  void Commit(SequenceId id) override { table_.Commit(id); }
  using StepSequences::Commit;
  void Undo(SequenceId id, uint32_t position) override;
  using StepSequences::Undo;

  // Call before the rows are computed: copies states that earlier rows of the step left in
  // kept places to the places that these rows write to. REQUIRES: Append().
  void PassOn(std::span<const BatchRow> rows);
  // libllama's sequence that the step under way writes the token at `position` to. REQUIRES:
  // Append().
  llama_seq_id WritesTo(SequenceId id, uint32_t position) const;
  // kInvalidRequest: no place holds the sequence; kUnsupported: libllama gives no bytes. REQUIRES:
  // the sequence has a position, and all of its tokens are committed.
  Result<HostedMemory> Save(SequenceId id);
  // Gives a new sequence the tokens, and to libllama what was remembered of them. On errors the
  // sequence has no position: kInvalidRequest, of Append(); kInvalidFile: libllama does not take
  // the bytes. REQUIRES: `tokens` has one, the bytes are Save()'s of such a model and context.
  Status Restore(SequenceId id, std::span<const Token> tokens, const HostedMemory& memory);

 private:
  // libllama's sequence that holds the last committed tokens; nullopt: none does, since the
  // sequence has no position, or was forked when no place was left.
  std::optional<llama_seq_id> HeldIn(SequenceId id) const;
  Status Take(SequenceId id);
  void GiveBack(SequenceId id);
  Status BeginState(SequenceId id);
  void Forget(llama_seq_id place) { llama_memory_seq_rm(memory_, place, -1, -1); }
  void ForgetUnused();
  Status AppendKept(SequenceId id, std::span<const Token> tokens,
                    std::span<const HostedMemory::Part> parts);
  Result<std::string> BytesOf(llama_seq_id place, llama_state_seq_flags which) const;
  bool Read(std::string_view bytes, llama_seq_id place, llama_state_seq_flags which) const;
  Status AddStates(const Timeline& timeline, HostedMemory& memory) const;
  uint32_t WindowCells(llama_seq_id copy, size_t bytes);
  Status AddWindows(llama_seq_id place, uint32_t end, HostedMemory& memory);
  bool ReadStates(const Timeline& timeline, const HostedMemory& memory);
  bool ReadWindows(llama_seq_id place, const HostedMemory& memory);

  llama_context* context_;
  llama_memory_t memory_;
  MemoryTraits traits_;
  SequenceTable table_;
  // Places of models with cells alone.
  std::map<SequenceId, llama_seq_id> places_;
  std::vector<llama_seq_id> free_places_;
  // In models with states: whether each place holds a state.
  std::vector<uint8_t> is_written_;
};

}  // namespace moestro
