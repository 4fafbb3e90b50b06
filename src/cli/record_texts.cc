// SPDX-License-Identifier: MIT
#include "cli/record_texts.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/progress.h"
#include "cli/random_tokens.h"
#include "cli/session.h"
#include "cli/text_input.h"
#include "engine/engine.h"
#include "engine/route_recorder.h"
#include "model/model_file.h"
#include "model/vocab.h"

namespace moestro {
namespace {

// A text longer than the context becomes several sequences.
Status RecordText(const RecordOptions& options, const std::string& path, const Vocab& vocab,
                  Engine& engine, RouteRecorder& recorder, ProgressBar& bar) {
  TRY(const std::string text, ReadTextFile(path));
  TRY(std::vector<Token> tokens, vocab.Tokenize(text, true, false));
  if (options.tokens > 0 && tokens.size() > options.tokens) tokens.resize(options.tokens);
  std::span<const Token> rest = tokens;
  while (!rest.empty()) {
    const auto part = rest.first(std::min<size_t>(rest.size(), engine.n_ctx()));
    // In steps, so that a progress bar moves.
    TRY_STATUS(recorder.Record(part, options.prefill));
    rest = rest.subspan(part.size());
    bar.Update(std::filesystem::path(path).filename().string(), tokens.size() - rest.size(),
               tokens.size());
  }
  return {};
}

}  // namespace

Result<Trace> RecordTexts(const RecordOptions& options) {
  TRY(ModelFile model, ModelFile::Open(options.model));
  std::optional<Vocab> vocab;
  if (!options.texts.empty()) {
    TRY(vocab, Vocab::Load(model.gguf));
  }
  ProgressBar bar(ProgressBar::Stderr());
  TRY(const std::unique_ptr<Engine> engine,
      Engine::Open(std::move(model), options.engine, ShowOn(bar)));
  const MemoryPlan& memory = engine->memory();
  TRY(Trace empty,
      Trace::Create({.model = std::filesystem::path(options.model).filename().string(),
                     .model_id = engine->model_id(),
                     .expert_bytes = memory.all_experts / std::max<uint64_t>(memory.n_experts, 1),
                     .n_layer = engine->spec().n_expert_layers(),
                     .n_expert = engine->spec().router.n_expert,
                     .n_used = engine->spec().router.n_used,
                     .depth = options.predictions ? engine->max_look_ahead() : 0,
                     .has_weights = true}));
  RouteRecorder recorder(*engine, std::move(empty));
  if (options.random > 0) {
    const uint32_t n = std::min(options.random, engine->n_ctx());
    TRY_STATUS(
        recorder.Record(RandomTokens(options.seed, n, engine->spec().n_vocab), options.prefill));
  }
  for (const std::string& path : options.texts) {
    TRY_STATUS(RecordText(options, path, *vocab, *engine, recorder, bar));
  }
  bar.Clear();
  return recorder.trace();
}

}  // namespace moestro
