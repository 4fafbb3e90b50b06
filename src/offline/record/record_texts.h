// SPDX-License-Identifier: MIT
// Routing of texts, recorded by running a model on them: for `trace` and `profile`.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/model_spec.h"
#include "engine/engine.h"
#include "offline/shard/shard_file.h"
#include "trace/trace.h"

namespace moestro {

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
