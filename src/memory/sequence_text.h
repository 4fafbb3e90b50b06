// SPDX-License-Identifier: MIT
// The text in the file of a sequence: the run's choices, notes and tokens.
//
// Thread rule: the engine thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/binary_file.h"
#include "base/result.h"
#include "core/ids.h"
#include "engine/sequence.h"

namespace moestro {

// The text in the file of a sequence, which every engine writes alike: behind the file's header the
// run's choices, the notes and the tokens. The header has the numbers of model and weights.

// Settings of a run that decide the bits of keys and values, beside weights and tokens: by name, as
// a saved sequence stores them. docs/sequence-format.md lists all flags and whether they count.
// Pure values.

class KvChoices {
 public:
  // REQUIRES: names and values have no line break; a name has no space and comes once.
  void Add(std::string_view name, std::string value);
  // A line for each: name, space, value. Empty: everything is as without flags.
  std::string text() const;

  // The first difference between two texts, as the rest of a sentence about a file that was saved
  // with `saved` and is offered to a run with `ours`: "was saved with --t1 0.5, and this run has
  // --t1 0.6; ...". Empty: no difference. Lines that begin with a word of `ignored` do not count.
  static std::string Difference(std::string_view saved, std::string_view ours,
                                std::string_view ignored = {});
  // The value of a name in a text; empty if the text lacks the name.
  static std::string_view Find(std::string_view text, std::string_view name);

 private:
  std::vector<std::pair<std::string, std::string>> choices_;
};

// The name of the processor's kernels among the choices. Different kernels differ by roundings
// alone, so a file that the user named is accepted with a warning.
inline constexpr std::string_view kKernelsChoice = "kernels";

// Properties of a run that the text in a file must agree with.
struct TextHome {
  KvOrigin origin;
  uint32_t n_ctx = 0;
  uint32_t n_vocab = 0;
  uint64_t most_bytes = UINT64_MAX;  // of a text's memory, whose size only the file has
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
