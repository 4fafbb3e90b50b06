// SPDX-License-Identifier: MIT
// Texts from files and standard input, of any length, as tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "engine/engine_options.h"
#include "model/token_stream.h"
#include "model/vocab.h"

namespace moestro {

// Texts of any length as tokens, within the budget. Commands do this before the engine takes its
// memory: the memory of tokenizing is free again by then, and the plan counts the tokens that are
// kept.

// Texts from files and from standard input.

// The text of a file or of standard input, without one final line break, in parts on request. kIo:
// the file cannot be opened or read; the message names it.
Result<TextSource> OpenText(const std::string& path);
TextSource StandardInput();
// Reads a whole file of at most 1 MiB in UTF-8. kInvalidRequest, naming the file, for any other
// file.
Result<std::string> ReadSmallText(const std::string& path);

// The most bytes of a text that may be tokenized at once in the memory that the budget leaves now.
size_t LongestPiece(const EngineOptions& options);

struct Prompt {
  std::string text;
  std::vector<Token> tokens;
};

// The limit of a context for texts.
struct ContextLimit {
  uint32_t n_ctx = 0;
  uint32_t n_ctx_train = 0;  // for the message
};

// Reads a whole text as tokens, with the tokens that begin and end a text, and control tokens where
// the text spells them. kInvalidRequest if the text does not fit the context. This error comes as
// soon as it is certain, also for a text that does not fit in memory.
Result<Prompt> ReadPrompt(const Vocab& vocab, const TextSource& source, const ContextLimit& limit,
                          const EngineOptions& options);

// The first `most` tokens of a text, or all if `most` is 0. kInvalidRequest if the budget does not
// hold the tokens. Error messages call the text `name`. `parse_special`: control tokens where the
// text spells them, as in ReadPrompt().
Result<std::vector<Token>> TokenizeText(const Vocab& vocab, TextSource source,
                                        const std::string& name, uint64_t most,
                                        const EngineOptions& options, bool parse_special = false);

// The number of equal tokens at the start of both.
size_t CommonPrefix(std::span<const Token> a, std::span<const Token> b);

}  // namespace moestro
