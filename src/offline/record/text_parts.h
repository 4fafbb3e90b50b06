// SPDX-License-Identifier: MIT
// Texts that a model is run on to learn from it, as sequences that fit its context.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "engine/engine.h"

namespace moestro {

struct NamedTokens {
  std::string name;  // of the text, for the progress bar
  std::vector<Token> tokens;
};

// The first `most` tokens of each text, or all if that is 0. What the vocabulary took is free again
// when this returns. Errors: those of OpenText(), Vocab::Load() and TokenizeText().
Result<std::vector<NamedTokens>> TokenizeTexts(const std::vector<std::string>& paths, uint32_t most,
                                               const EngineOptions& options, const GgufFile& file);

// Calls `evaluate` for each text, in parts of at most n_ctx tokens, each the start of a sequence;
// returns its error at once. `progress` may be empty.
Status ForEachPart(std::span<const NamedTokens> texts, size_t n_ctx, const Progress& progress,
                   const std::function<Status(std::span<const Token> part)>& evaluate);

}  // namespace moestro
