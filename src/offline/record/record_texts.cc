// SPDX-License-Identifier: MIT
#include "offline/record/record_texts.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/random_tokens.h"
#include "engine/route_recorder.h"
#include "load/model_to_load.h"
#include "load/open_engine.h"
#include "native/native_engine.h"
#include "offline/record/text_parts.h"

namespace moestro {

Status RecordTexts(const RecordOptions& options, const OpenSink& open) {
  TRY(ModelToLoad model, ModelToLoad::Open(options.model, options.engine.engine));
  const MoeShape shape = model.id().shape;
  TRY(std::vector<NamedTokens> texts,
      TokenizeTexts(options.texts, options.tokens, options.engine, model.gguf()));
  EngineOptions engine_options = options.engine;
  uint32_t little = 0;
  if (engine_options.little.is_on() && model.is_native()) {
    TRY(little, CheckLittle(engine_options.little, shape.n_used, !options.engine.low.empty()));
    engine_options.little = {};
  }
  const uint32_t n_ctx = std::min(engine_options.ctx, model.n_ctx_train());
  const uint32_t random = std::min(options.random, n_ctx);
  if (random > 0) {
    texts.insert(texts.begin(), {.name = "random tokens",
                                 .tokens = RandomTokens(random, model.n_vocab(), options.seed)});
  }
  uint64_t tokens = 0;
  for (const NamedTokens& text : texts) tokens += text.tokens.size();
  engine_options.caller_bytes += tokens * shape.n_layer * shape.n_used * options.bytes_per_expert;

  const bool is_native = model.is_native();
  TRY(const std::unique_ptr<Engine> engine,
      OpenEngine(std::move(model), engine_options, options.progress));
  if (options.candidates) TRY_STATUS(AsNative(*engine, "--candidates"));
  const MemoryPlan& memory = engine->memory();
  const TraceInfo info{.model = engine->id(),
                       .expert_bytes = memory.all_experts / std::max<uint64_t>(memory.n_experts, 1),
                       .pools = engine->facts().pools,
                       .depth = options.details ? engine->facts().max_look_ahead : 0,
                       .little = little,
                       .has_weights = options.details && is_native,
                       .has_predicted_weights = options.candidates,
                       .has_candidates = options.candidates,
                       .reads_prompts_ahead = is_native};
  TRY(TraceSink sink, open(info, tokens));
  if (options.watch_experts && is_native) {
    TRY(NativeEngine* const native, AsNative(*engine, "expert outputs"));
    native->SetExpertObserver(options.watch_experts(native->spec(), engine->id()));
  }
  RouteRecorder recorder(*engine, info, std::move(sink));
  return ForEachPart(texts, engine->n_ctx(), options.progress, [&](std::span<const Token> part) {
    return recorder.Record(part, options.prefill);
  });
}

}  // namespace moestro
