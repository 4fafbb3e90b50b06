// SPDX-License-Identifier: MIT
// Routing of texts, recorded by running a model on them: for `trace` and `profile`.
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
#include "offline/shard_file.h"
#include "trace/trace.h"

namespace moestro {

// Texts for learning from a model's runs, as sequences that fit its context.

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

struct RecordOptions {
  std::string model;
  EngineOptions engine;            // with `little`, every token is recorded with fewer experts, too
  std::vector<std::string> texts;  // paths; each begins a sequence, and more if it is long
  uint32_t random = 0;             // random tokens, before the texts; at most a context of them
  uint32_t seed = 1;               // of the random tokens
  uint32_t tokens = 0;             // of each text; 0: all
  bool details = false;     // weights, and the choices of the next engine.prefetch layers' routers
  bool candidates = false;  // the next best experts of each layer
  uint32_t prefill = 0;     // at the start of each sequence, evaluated at once
  std::optional<ShardRequest> shard = {};  // evaluates its windows alone
  // Bytes that the sink keeps for each expert of a token; part of the plan of memory.
  uint64_t bytes_per_expert = 0;
  uint64_t bytes_per_window = 0;  // and for each expert of the model in each window
  // Made once the engine is open, to observe experts' inputs and outputs; may be empty. The hosted
  // engine has no such observer and never calls it.
  std::function<ExpertObserver(const ModelSpec& spec, const ModelId& id)> watch_experts = {};
  // Called at the end of each sequence; may be empty.
  std::function<void()> end_window = {};
  Progress progress = {};  // may be empty
};

// The texts that will be evaluated.
struct TextsToRecord {
  const TraceInfo& info;
  uint64_t tokens = 0;
  const std::optional<ShardInfo>& shard;  // with RecordOptions::shard
};
// Called once, before the first token; returns the sink for the tokens.
using OpenSink = std::function<Result<TraceSink>(const TextsToRecord& texts)>;

// Tokenizes all texts, then opens the engine in the remaining memory, and passes each token on as
// it is evaluated. For a shard without windows neither the engine nor the sink is opened. Returns
// the requested shard. Errors: those of OpenText(), TokenizeText(), CheckShardable(), TakeShard(),
// the engine and the sink.
Result<std::optional<ShardInfo>> RecordTexts(const RecordOptions& options, const OpenSink& open);

}  // namespace moestro
