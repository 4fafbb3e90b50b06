// SPDX-License-Identifier: MIT
#include "offline/record_texts.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>
#include <utility>

#include "core/random_tokens.h"
#include "engine/engine.h"
#include "engine/route_recorder.h"
#include "model/model_file.h"
#include "model/vocab.h"
#include "text/text_file.h"
#include "text/text_tokens.h"

namespace moestro {
namespace {

struct NamedTokens {
  std::string name;
  std::vector<Token> tokens;
};

// The vocabulary is gone again when the engine takes its memory.
Result<std::vector<NamedTokens>> TokenizeTexts(const RecordOptions& options, const GgufFile& file) {
  std::vector<NamedTokens> all;
  if (options.texts.empty()) return all;
  TRY(const Vocab vocab, Vocab::Load(file));
  for (const std::string& path : options.texts) {
    TRY(TextSource source, OpenText(path));
    TRY(std::vector<Token> tokens,
        TokenizeText(vocab, std::move(source), path, options.tokens, options.engine));
    all.push_back(
        {.name = std::filesystem::path(path).filename().string(), .tokens = std::move(tokens)});
  }
  return all;
}

// A text longer than the context becomes several sequences.
Status RecordText(const NamedTokens& text, size_t n_ctx, size_t prefill, RouteRecorder& recorder,
                  const Progress& progress) {
  std::span<const Token> rest = text.tokens;
  while (!rest.empty()) {
    const auto part = rest.first(std::min(rest.size(), n_ctx));
    TRY_STATUS(recorder.Record(part, prefill));
    rest = rest.subspan(part.size());
    if (progress) {
      progress(text.name.c_str(), text.tokens.size() - rest.size(), text.tokens.size());
    }
  }
  return {};
}

}  // namespace

Status RecordTexts(const RecordOptions& options, const OpenSink& open) {
  TRY(ModelFile model, ModelFile::Open(options.model));
  const ModelSpec spec = model.spec;
  TRY(std::vector<NamedTokens> texts, TokenizeTexts(options, model.gguf));
  EngineOptions engine_options = options.engine;
  const uint32_t n_ctx = std::min(engine_options.ctx, spec.n_ctx_train);
  const uint32_t random = std::min(options.random, n_ctx);
  if (random > 0) {
    texts.insert(texts.begin(), {.name = "random tokens",
                                 .tokens = RandomTokens(random, spec.n_vocab, options.seed)});
  }
  uint64_t tokens = 0;
  for (const NamedTokens& text : texts) tokens += text.tokens.size();
  engine_options.caller_bytes +=
      tokens * spec.n_expert_layers() * spec.router.n_used * options.bytes_per_expert;

  TRY(const std::unique_ptr<Engine> engine,
      Engine::Open(std::move(model), engine_options, options.progress));
  const MemoryPlan& memory = engine->memory();
  const TraceInfo info{.model = engine->id(),
                       .expert_bytes = memory.all_experts / std::max<uint64_t>(memory.n_experts, 1),
                       .depth = options.details ? engine->max_look_ahead() : 0,
                       .has_weights = options.details,
                       .has_candidates = options.candidates};
  TRY(TraceSink sink, open(info, tokens));
  RouteRecorder recorder(*engine, info, std::move(sink));
  for (const NamedTokens& text : texts) {
    TRY_STATUS(RecordText(text, engine->n_ctx(), options.prefill, recorder, options.progress));
  }
  return {};
}

}  // namespace moestro
