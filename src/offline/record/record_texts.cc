// SPDX-License-Identifier: MIT
#include "offline/record/record_texts.h"

#include <algorithm>
#include <bit>
#include <filesystem>
#include <memory>
#include <utility>

#include "base/hash.h"
#include "base/text.h"
#include "core/random_tokens.h"
#include "engine/recorded_routing.h"
#include "load/open_engine.h"
#include "model/vocab.h"
#include "native/find_weights.h"
#include "native/native_engine.h"
#include "text/span_corruption.h"
#include "text/text_tokens.h"

namespace moestro {

namespace {

std::string NameOf(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

// Sources and targets, a part each.
Result<CutTexts> ReadSpans(const Vocab& vocab, const std::vector<std::string>& paths, uint32_t most,
                           const EngineOptions& options, const ReadsTexts& model) {
  TRY(const SpanRules rules, FindSpanRules(vocab, *model.encoder, options, model.n_ctx));
  CutTexts all;
  for (const std::string& path : paths) {
    TRY(TextSource source, OpenText(path));
    TRY(SpanText spans, ReadSpanText(vocab, std::move(source), path, most, options, rules));
    for (const SpanWindow& window : spans.windows) {
      all.parts.push_back(
          {.text = all.texts.size(), .begin = window.begin, .length = window.length});
    }
    all.texts.push_back({.name = NameOf(path), .tokens = std::move(spans.tokens)});
  }
  return all;
}

}  // namespace

Result<CutTexts> ReadTextParts(const std::vector<std::string>& paths, uint32_t most,
                               const EngineOptions& options, const ReadsTexts& model) {
  CutTexts all;
  if (paths.empty()) return all;
  TRY(const Vocab vocab, Vocab::Load(model.file));
  if (model.encoder) return ReadSpans(vocab, paths, most, options, model);
  for (const std::string& path : paths) {
    TRY(TextSource source, OpenText(path));
    TRY(std::vector<Token> tokens, TokenizeText(vocab, std::move(source), path, most, options));
    all.texts.push_back({.name = NameOf(path), .tokens = std::move(tokens)});
  }
  all.parts = CutIntoParts(all.texts, model.n_ctx);
  return all;
}

void PutFirst(NamedTokens text, CutTexts& all) {
  for (TextSlice& part : all.parts) ++part.text;
  all.parts.insert(all.parts.begin(), {.text = 0, .begin = 0, .length = text.tokens.size()});
  all.texts.insert(all.texts.begin(), std::move(text));
}

std::vector<TextSlice> CutIntoParts(std::span<const NamedTokens> texts, size_t n_ctx) {
  std::vector<TextSlice> parts;
  for (size_t i = 0; i < texts.size(); ++i) {
    const size_t tokens = texts[i].tokens.size();
    for (size_t begin = 0; begin < tokens; begin += n_ctx) {
      parts.push_back({.text = i, .begin = begin, .length = std::min(n_ctx, tokens - begin)});
    }
  }
  return parts;
}

uint64_t HashOf(std::span<const NamedTokens> texts, std::span<const TextSlice> parts) {
  Fnv1a hash;
  for (const TextSlice& part : parts) {
    hash.AddNumber(uint64_t{part.length});
    for (const Token token : std::span(texts[part.text].tokens).subspan(part.begin, part.length)) {
      hash.AddNumber(std::bit_cast<uint32_t>(token));
    }
  }
  return hash.value();
}

uint64_t TokensOf(std::span<const TextSlice> parts) {
  uint64_t tokens = 0;
  for (const TextSlice& part : parts) tokens += part.length;
  return tokens;
}

Result<ShardInfo> TakeShard(const ShardRequest& request, std::span<const NamedTokens> texts,
                            std::vector<TextSlice>& parts) {
  if (parts.empty()) {
    return Fail(Errc::kInvalidRequest, "no token to learn from; give a longer text");
  }
  ShardInfo info{.command = request.command,
                 .shard = request.shard,
                 .text_hash = HashOf(texts, parts),
                 .windows = parts.size()};
  const WindowRange range = info.range();
  parts.erase(parts.begin() + static_cast<ptrdiff_t>(range.end), parts.end());
  parts.erase(parts.begin(), parts.begin() + static_cast<ptrdiff_t>(range.begin));
  return info;
}

Status ForEachPart(std::span<const NamedTokens> texts, std::span<const TextSlice> parts,
                   const Progress& progress,
                   const std::function<Status(std::span<const Token> part)>& evaluate) {
  const uint64_t total = TokensOf(parts);
  uint64_t done = 0;
  for (const TextSlice& part : parts) {
    const NamedTokens& text = texts[part.text];
    TRY_STATUS(evaluate(std::span(text.tokens).subspan(part.begin, part.length)));
    done += part.length;
    if (progress) progress(text.name.c_str(), done, total);
  }
  return {};
}

namespace {

// Fewest random tokens for a model with an encoder: a token and the source's end, the target's
// begin and a token.
constexpr uint32_t kShortestRandom = 4;

struct RecordedCut {
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

Result<RecordedCut> ReadTexts(const RecordOptions& options, const ModelToLoad& model) {
  RecordedCut read;
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
          .reads_prompts_ahead = is_native,
          .token_layers = engine.facts().token_layers};
}

}  // namespace

Result<std::optional<ShardInfo>> RecordTexts(const RecordOptions& options, const OpenSink& open) {
  TRY(ModelToLoad model, ModelToLoad::Open(options.model, options.engine.engine));
  const MoeShape shape = model.id().shape;
  TRY(const RecordedCut read, ReadTexts(options, model));
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
