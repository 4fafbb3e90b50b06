// SPDX-License-Identifier: MIT
// Sequences of the hosted engine, in libllama's memory and as files.
//
// Thread rule: the engine thread.
#pragma once

#include <llama.h>

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/output_file.h"
#include "base/result.h"
#include "core/batch.h"
#include "engine/engine.h"
#include "engine/sequence.h"
#include "hosted/hosted_model.h"
#include "memory/sequence.h"
#include "memory/sequence_text.h"
#include "model/gguf_file.h"

namespace moestro {

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
  // n_places: the number of libllama's sequences.
  HostedSequences(llama_memory_t memory, bool has_states, uint32_t n_blocks, uint32_t n_places);

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

  // Call before the rows are computed: copies states that earlier rows of the step left in kept
  // places to the places that these rows write to. REQUIRES: Append().
  void PassOn(std::span<const BatchRow> rows);
  // libllama's sequence that the step under way writes the token at `position` to. REQUIRES:
  // Append().
  llama_seq_id WritesTo(SequenceId id, uint32_t position) const;
  // libllama's sequence that holds the last committed tokens; nullopt: none does, since the
  // sequence has no position, or was forked when no place was left.
  std::optional<llama_seq_id> HeldIn(SequenceId id) const;

 private:
  Status Take(SequenceId id);
  void GiveBack(SequenceId id);
  Status BeginState(SequenceId id);
  void Forget(llama_seq_id place) { llama_memory_seq_rm(memory_, place, -1, -1); }
  void ForgetUnused();

  llama_memory_t memory_;
  bool has_states_;
  SequenceTable table_;
  // Places of models with cells alone.
  std::map<SequenceId, llama_seq_id> places_;
  std::vector<llama_seq_id> free_places_;
  // In models with states: whether each place holds a state.
  std::vector<uint8_t> is_written_;
};

// Sequences of the hosted engine as files: a header of ours, then libllama's bytes of the
// sequence's memory. Sizes and checksum are compared before libllama gets the bytes, because
// libllama empties a sequence that it cannot fill. docs/hosted.md describes the bytes.
//
// Thread rule: the engine thread.

struct HostedText {
  SavedTokens text;
  std::vector<uint8_t> state;  // the bytes of llama_state_seq_get_data()
};

// The origin of a run's keys, values and states: the model's weights, libllama, and the choices.
class HostedOrigin {
 public:
  // Both must outlive this.
  HostedOrigin(const GgufFile& file, const HostedModel& model) : file_(file), model_(model) {}

  // Reads a sample of the experts the first time. kIo. REQUIRES: the dense tensors are loaded.
  Result<TextHome> Home(const EngineFacts& facts, KvType kv_type);

 private:
  Result<uint64_t> Weights(uint64_t fingerprint);

  const GgufFile& file_;
  const HostedModel& model_;
  std::optional<uint64_t> weights_;
};

// kInvalidRequest: the notes are too long. kIo: no part of the file is left.
Status WriteHosted(const OutputPath& path, const TextHome& home, std::span<const Token> tokens,
                   const std::string& notes, std::span<const uint8_t> state);
// Reads the text without the state and without checking the state's bytes. kInvalidRequest: the
// file is of another model, other weights or choices, or too long for the context; kInvalidFile,
// kUnsupported, kIo.
Result<SavedTokens> PeekHosted(const std::string& path, const TextHome& home);
// Reads text and state, and compares all bytes with the checksum. Errors as PeekHosted().
Result<HostedText> ReadHosted(const std::string& path, const TextHome& home);

}  // namespace moestro
