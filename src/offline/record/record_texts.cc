// SPDX-License-Identifier: MIT
#include "offline/record/record_texts.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/format.h"
#include "core/random_tokens.h"
#include "engine/route_recorder.h"
#include "load/model_to_load.h"
#include "load/open_engine.h"
#include "native/find_weights.h"
#include "native/native_engine.h"
#include "offline/record/text_parts.h"
#include "text/span_corruption.h"

namespace moestro {
namespace {

// Fewest random tokens for a model with an encoder: a token and the source's end, the target's
// begin and a token.
constexpr uint32_t kShortestRandom = 4;

struct RecordedParts {
  CutTexts text;
  std::optional<ShardInfo> shard;
};

// Random tokens; of a model with an encoder the first half is a source.
NamedTokens RandomText(uint32_t n, const ModelToLoad& model, uint32_t seed) {
  NamedTokens text{.name = "random tokens", .tokens = RandomTokens(n, model.n_vocab(), seed)};
  const size_t source = std::min<size_t>(n / 2, kSourceTokens);
  MakePrompt(model.encoder(), std::max<size_t>(source, 1) + 1, text.tokens);
  return text;
}

// Settings of a trace beside those that every command has.
std::string RecordSettings(const RecordOptions& options) {
  std::string text = Format("prefill {}\n", options.prefill);
  if (options.details) text += Format("prefetch {}\n", options.engine.prefetch);
  if (options.candidates) text += "candidates\n";
  return text;
}

Result<RecordedParts> ReadTexts(const RecordOptions& options, const ModelToLoad& model) {
  RecordedParts read;
  const uint32_t n_ctx = std::min(options.engine.ctx, model.n_ctx_train());
  TRY(read.text, ReadTextParts(options.texts, options.tokens, options.engine,
                               {.file = model.gguf(), .encoder = model.encoder(), .n_ctx = n_ctx}));
  const uint32_t random = std::min(options.random, n_ctx);
  if (random > 0 && model.encoder() && random < kShortestRandom) {
    return Fail(Errc::kInvalidRequest,
                "{} random tokens are no source with a target; give --random {} or more", random,
                kShortestRandom);
  }
  if (random > 0) PutFirst(RandomText(random, model, options.seed), read.text);
  if (!options.shard) return read;
  TRY_STATUS(CheckShardable(options.engine));
  TRY(ShardInfo info, TakeShard(*options.shard, read.text.texts, read.text.parts));
  info.model = model.id().name;
  info.fingerprint = model.id().fingerprint;
  info.settings = SettingsText(options.engine, {.is_native = model.is_native(), .n_ctx = n_ctx}) +
                  RecordSettings(options);
  if (model.is_native()) {
    TRY(info.weights, FindWeightsId(model.native(), options.engine.weights_folder));
  }
  read.shard = std::move(info);
  return read;
}

TraceInfo InfoOf(const RecordOptions& options, const Engine& engine, uint32_t little,
                 bool is_native) {
  const MemoryPlan& memory = engine.memory();
  return {.model = engine.id(),
          .expert_bytes = memory.all_experts / std::max<uint64_t>(memory.n_experts, 1),
          .pools = engine.facts().pools,
          .depth = options.details ? engine.facts().max_look_ahead : 0,
          .little = little,
          .has_weights = options.details && is_native,
          .has_predicted_weights = options.candidates,
          .has_candidates = options.candidates,
          .may_repeat = !is_native,
          .has_prompt_steps = true,
          .reads_prompts_ahead = is_native};
}

}  // namespace

Result<std::optional<ShardInfo>> RecordTexts(const RecordOptions& options, const OpenSink& open) {
  TRY(ModelToLoad model, ModelToLoad::Open(options.model, options.engine.engine));
  const MoeShape shape = model.id().shape;
  TRY(const RecordedParts read, ReadTexts(options, model));
  if (read.shard && read.text.parts.empty()) return read.shard;
  EngineOptions engine_options = options.engine;
  uint32_t little = 0;
  if (engine_options.little.is_on() && model.is_native()) {
    TRY(little, CheckLittle(engine_options.little, shape.n_used, !options.engine.low.empty()));
    engine_options.little = {};
  }
  const uint64_t tokens = TokensOf(read.text.parts);
  engine_options.caller_bytes +=
      tokens * shape.n_layer * shape.n_used * options.bytes_per_expert +
      read.text.parts.size() * shape.experts() * options.bytes_per_window;

  const bool is_native = model.is_native();
  TRY(const std::unique_ptr<Engine> engine,
      OpenEngine(std::move(model), engine_options, options.progress));
  if (options.candidates) TRY_STATUS(AsNative(*engine, "--candidates"));
  const TraceInfo info = InfoOf(options, *engine, little, is_native);
  TRY(TraceSink sink, open({.info = info, .tokens = tokens, .shard = read.shard}));
  if (options.watch_experts && is_native) {
    TRY(NativeEngine* const native, AsNative(*engine, "expert outputs"));
    native->SetExpertObserver(options.watch_experts(native->spec(), engine->id()));
  }
  RouteRecorder recorder(*engine, info, std::move(sink));
  const auto record = [&](std::span<const Token> part) -> Status {
    TRY_STATUS(recorder.Record(part, options.prefill));
    if (options.end_window) options.end_window();
    return {};
  };
  TRY_STATUS(ForEachPart(read.text.texts, read.text.parts, options.progress, record));
  return read.shard;
}

}  // namespace moestro
