// SPDX-License-Identifier: MIT
// Texts for learning from a model's runs, as sequences that fit its context.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "core/model_spec.h"
#include "engine/engine.h"
#include "model/gguf_file.h"
#include "offline/shard/shard_file.h"

namespace moestro {

struct NamedTokens {
  std::string name;  // of the text, for the progress bar
  std::vector<Token> tokens;
};

// A part of a text that is one sequence.
struct TextSlice {
  size_t text = 0;
  size_t begin = 0;
  size_t length = 0;
};

// Texts, and their parts in order; all of them hold all tokens.
struct CutTexts {
  std::vector<NamedTokens> texts = {};
  std::vector<TextSlice> parts = {};
};

// The model that reads the texts.
struct ReadsTexts {
  const GgufFile& file;
  std::optional<EncoderSpec> encoder = {};
  uint32_t n_ctx = 0;
};

// The first `most` tokens of each text, or all if that is 0, in parts of at most n_ctx tokens; of a
// model with an encoder as sources and targets (text/span_corruption.h). The vocabulary is freed
// before the call returns. Errors: those of OpenText(), Vocab::Load(), TokenizeText() and
// FindSpanTokens().
Result<CutTexts> ReadTextParts(const std::vector<std::string>& paths, uint32_t most,
                               const EngineOptions& options, const ReadsTexts& model);
// Puts a text of tokens, as one part, before all others.
void PutFirst(NamedTokens text, CutTexts& all);

// Parts of at most n_ctx tokens, in order; all of them hold all tokens.
std::vector<TextSlice> CutIntoParts(std::span<const NamedTokens> texts, size_t n_ctx);
// Hash of the parts' tokens and of the positions where parts begin.
uint64_t HashOf(std::span<const NamedTokens> texts, std::span<const TextSlice> parts);
uint64_t TokensOf(std::span<const TextSlice> parts);

// Reduces `parts` to those of a shard and returns the text's side of a ShardInfo, which describes
// all parts. kInvalidRequest: the texts have no part.
Result<ShardInfo> TakeShard(const ShardRequest& request, std::span<const NamedTokens> texts,
                            std::vector<TextSlice>& parts);

// Calls `evaluate` for each part; returns its error at once. `progress` may be empty.
Status ForEachPart(std::span<const NamedTokens> texts, std::span<const TextSlice> parts,
                   const Progress& progress,
                   const std::function<Status(std::span<const Token> part)>& evaluate);

}  // namespace moestro
