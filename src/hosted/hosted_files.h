// SPDX-License-Identifier: MIT
// Sequences of the hosted engine as files: a header of ours, then libllama's bytes of the
// sequence's memory. Sizes and checksum are compared before libllama gets the bytes, because
// libllama empties a sequence that it cannot fill. docs/hosted.md describes the bytes.
//
// Thread rule: the engine thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/output_file.h"
#include "base/result.h"
#include "engine/engine.h"
#include "engine/sequence.h"
#include "hosted/hosted_model.h"
#include "hosted/hosted_sequences.h"
#include "memory/sequence_text.h"
#include "model/gguf_file.h"

namespace moestro {

struct HostedText {
  SavedTokens text;
  HostedMemory memory;
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
                   const std::string& notes, const HostedMemory& memory);
// Reads the text without libllama's bytes and without checking them. kInvalidRequest: the
// file is of another model, other weights or choices, or too long for the context; kInvalidFile,
// kUnsupported, kIo.
Result<SavedTokens> PeekHosted(const std::string& path, const TextHome& home);
// Reads text and memory, and compares all bytes with the checksum. Errors as PeekHosted().
Result<HostedText> ReadHosted(const std::string& path, const TextHome& home);

}  // namespace moestro
