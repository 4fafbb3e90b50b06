// SPDX-License-Identifier: MIT
// The text in the file of a sequence, which every engine writes alike: behind the file's header the
// run's choices, the notes and the tokens. The header has the numbers of model and weights.
//
// Thread rule: the engine thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/binary_file.h"
#include "base/result.h"
#include "core/ids.h"
#include "engine/saved_sequence.h"

namespace moestro {

// Properties of a run that the text in a file must agree with.
struct TextHome {
  KvOrigin origin;
  uint32_t n_ctx = 0;
  uint32_t n_vocab = 0;
};

struct SequenceText {
  // Values of the header.
  uint64_t model = 0;
  uint64_t weights = 0;
  uint32_t n_tokens = 0;
  uint32_t notes_bytes = 0;
  uint32_t choices_bytes = 0;
  uint64_t begin = 0;  // of the choices: the end of the header

  uint64_t notes_begin() const { return begin + choices_bytes; }
  uint64_t tokens_begin() const { return notes_begin() + notes_bytes; }
  uint64_t end() const { return tokens_begin() + uint64_t{n_tokens} * sizeof(Token); }

  // kInvalidRequest: the file is of another model or of other weights.
  Status CheckModel(const InputFile& file, const TextHome& home) const;
  // kInvalidFile: notes or choices of a length that no writer gives them. kInvalidRequest: the
  // tokens do not fit the context.
  Status CheckSizes(const InputFile& file, const TextHome& home) const;
  // kInvalidRequest: other choices. Different kernels are no reason to refuse. kIo.
  Status CheckChoices(const InputFile& file, const TextHome& home) const;
  // Warns of a file that other kernels computed. kIo.
  Status WarnOfKernels(const InputFile& file, const TextHome& home) const;
  // Reads notes and tokens. kInvalidFile: a token is outside the vocabulary. kIo.
  Result<SavedTokens> Read(const InputFile& file, const TextHome& home) const;
};

// kInvalidRequest: the notes are too long.
Status CheckNotes(const std::string& notes);
// Writes choices, notes and tokens. REQUIRES: CheckNotes(). kIo.
Status AddText(BinaryWriter& out, const TextHome& home, const std::string& notes,
               std::span<const Token> tokens);

}  // namespace moestro
