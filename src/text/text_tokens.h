// SPDX-License-Identifier: MIT
// Texts of any length as tokens, within the budget. Commands do this before the engine takes its
// memory: whatever tokenizing took is free again by then, and what is kept the plan sees.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "engine/engine_options.h"
#include "model/token_stream.h"
#include "model/vocab.h"

namespace moestro {

// How many bytes of a text may be tokenized at once in what the budget leaves now.
size_t LongestPiece(const EngineOptions& options);

struct Prompt {
  std::string text;
  std::vector<Token> tokens;
};

// What a context makes of texts that do not fit it.
struct ContextLimit {
  uint32_t n_ctx = 0;
  uint32_t n_ctx_train = 0;  // for the message
};

// A whole text with the tokens that begin and end one, and control tokens where it spells them.
// kInvalidRequest when it does not fit the context: told as soon as that is sure, of a text that
// fits no memory too.
Result<Prompt> ReadPrompt(const Vocab& vocab, const TextSource& source, const ContextLimit& limit,
                          const EngineOptions& options);

// The first `most` tokens of a text, or all if that is 0. kInvalidRequest when the budget does not
// hold them. Errors about the text call it `name`. `parse_special`: control tokens where it spells
// them, as ReadPrompt() does.
Result<std::vector<Token>> TokenizeText(const Vocab& vocab, TextSource source,
                                        const std::string& name, uint64_t most,
                                        const EngineOptions& options, bool parse_special = false);

}  // namespace moestro
