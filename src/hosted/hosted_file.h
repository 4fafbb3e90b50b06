// SPDX-License-Identifier: MIT
// Sequences of the hosted engine as files: a header of ours, then libllama's bytes of the
// sequence's memory. Sizes and checksum are compared before libllama gets the bytes, because
// libllama empties a sequence that it cannot fill. docs/hosted.md describes the bytes.
//
// Thread rule: the engine thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/output_path.h"
#include "base/result.h"
#include "engine/saved_sequence.h"

namespace moestro {

struct HostedText {
  SavedTokens text;
  std::vector<uint8_t> state;  // the bytes of llama_state_seq_get_data()
};

// Facts of a run that a file must match.
struct HostedHome {
  KvOrigin origin;
  uint32_t n_ctx = 0;
  uint32_t n_vocab = 0;
};

// kInvalidRequest: the notes are too long. kIo: no part of the file is left.
Status WriteHosted(const OutputPath& path, const HostedHome& home, std::span<const Token> tokens,
                   const std::string& notes, std::span<const uint8_t> state);
// Reads the text without the state and without checking the state's bytes. kInvalidRequest: the
// file is of another model, other weights or choices, or too long for the context; kInvalidFile,
// kUnsupported, kIo.
Result<SavedTokens> PeekHosted(const std::string& path, const HostedHome& home);
// Reads text and state, and compares all bytes with the checksum. Errors as PeekHosted().
Result<HostedText> ReadHosted(const std::string& path, const HostedHome& home);

}  // namespace moestro
