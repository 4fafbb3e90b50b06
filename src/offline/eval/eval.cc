// SPDX-License-Identifier: MIT
#include "offline/eval/eval.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "base/input_file.h"
#include "base/result.h"
#include "base/text.h"
#include "core/layer_plan.h"
#include "decide/slots/resident_model.h"
#include "engine/append.h"
#include "engine/engine_options.h"
#include "engine/knobs.h"
#include "load/open_engine.h"
#include "native/find_weights.h"
#include "native/native_engine.h"
#include "offline/eval/eval_stats.h"
#include "text/divergence.h"

namespace moestro {
namespace {

// Takes the logits of an evaluated position, and the token that follows.
struct Evaluator {
  std::function<void()> begin_window;
  std::function<Status(std::span<const float> logits, Token next)> evaluate;
};

// Decodes every window as a new sequence, one token a step but for the tokens that begin it
// together. Slots keep their experts in between.
Status DecodeText(Engine& engine, const EvalText& text, Sequence& sequence, const char* what,
                  const Progress& progress, const Evaluator& evaluator) {
  const uint64_t total = text.n_evaluated();
  uint64_t done = 0;
  for (const EvalText::Window& window : text.windows) {
    const std::span<const Token> tokens = text.tokens_of(window);
    sequence.CutBack(0);
    evaluator.begin_window();
    for (size_t next = window.together; next < tokens.size(); ++next) {
      const size_t at = sequence.position();
      TRY(const std::span<const float> logits,
          Append(engine, sequence, tokens.subspan(at, next - at)));
      if (next - 1 < window.first) continue;
      TRY_STATUS(evaluator.evaluate(logits, tokens[next]));
      if (progress) progress(what, ++done, total);
    }
  }
  return {};
}

// Counts the bytes of experts that the plans of a run would read from the disk if every read were
// done at once and no expert were prefetched. The count depends on tokens, slots and policy alone.
// Two equal runs have the same count, although their real reads may differ.
class AskedBytes {
 public:
  // Sets the engine's plan observer, and removes it in the destructor.
  explicit AskedBytes(Engine& engine) : engine_(engine), model_(engine.MakeResidentModel()) {
    engine.SetPlanObserver([this](const LayerPlan& plan) { See(plan); });
  }
  ~AskedBytes() { engine_.SetPlanObserver({}); }
  AskedBytes(const AskedBytes&) = delete;
  AskedBytes& operator=(const AskedBytes&) = delete;

  // Bytes of experts that decode rows needed and memory did not hold.
  uint64_t bytes() const { return bytes_; }

 private:
  void See(const LayerPlan& plan) {
    model_.BeginLayer(plan.layer);
    for (const PlannedExpert& expert : plan.experts) {
      const bool is_asked = expert.use == Use::kDecode && !model_.contains(expert.key);
      if (is_asked) bytes_ += engine_.place_of(expert.key).bytes;
    }
    model_.Run(plan);
  }

  Engine& engine_;
  ResidentModel model_;
  uint64_t bytes_ = 0;
};

}  // namespace

EngineOptions ExactOf(EngineOptions options) {
  options.low.clear();
  options.lossy = {};
  options.little = {};
  options.kv_type = EngineOptions().kv_type;
  return options;
}

double EvalResult::bytes_per_token() const {
  const uint64_t tokens = report.stats.decode.tokens;
  return tokens > 0 ? static_cast<double>(asked_bytes) / static_cast<double>(tokens) : 0.0;
}

Result<Evaluation> Evaluation::Prepare(EvalRequest request) {
  if (request.shard) TRY_STATUS(CheckShardable(request.engine));
  std::string scratch;
  if (request.against_exact && request.reference.empty()) {
    TRY(scratch, ScratchFolder(request.scratch, request.text.paths.front()));
  }
  TRY(ModelToLoad model, ModelToLoad::Open(request.model, request.engine.engine));
  TRY(EvalText text, ReadEvalText(TextModel::Of(model), request.text, request.engine));
  Evaluation evaluation(std::move(request), model.id(), std::move(text));
  evaluation.scratch_ = std::move(scratch);
  const EvalRequest& asked = evaluation.request_;
  if (asked.shard) TRY_STATUS(evaluation.TakeShare(model));
  if (!asked.against_exact) return evaluation;
  if (!asked.exact_model.empty()) {
    TRY(model, ModelToLoad::Open(asked.exact_model));
    TRY_STATUS(evaluation.CheckReadsAlike(model));
  }
  if (!model.is_native()) {
    return Fail(Errc::kUnsupported,
                "--against compares runs of the native engine; the hosted one, which {} needs, "
                "always runs exactly",
                model.arch_name());
  }
  if (asked.shard) TRY_STATUS(evaluation.NameExact(model.native()));
  if (evaluation.text_.windows.empty()) return evaluation;
  TRY_STATUS(evaluation.MakeReference(std::move(model).TakeNative()));
  return evaluation;
}

// Keeps the windows of the shard alone.
Status Evaluation::TakeShare(const ModelToLoad& model) {
  const WindowSettings settings{.is_native = model.is_native(), .n_ctx = text_.n_ctx};
  share_ = {.command = ShardOf::kEval,
            .shard = *request_.shard,
            .model = model_.name,
            .fingerprint = model_.fingerprint,
            .text_hash = text_hash_,
            .windows = text_.windows.size(),
            .settings = SettingsText(request_.engine, settings) +
                        Format("score-from {}\n", text_.score_from)};
  if (model.is_native()) {
    TRY(share_->weights, FindWeightsId(model.native(), request_.engine.weights_folder));
  }
  const WindowRange range = share_->range();
  std::vector<EvalText::Window>& windows = text_.windows;
  windows.erase(windows.begin() + static_cast<ptrdiff_t>(range.end), windows.end());
  windows.erase(windows.begin(), windows.begin() + static_cast<ptrdiff_t>(range.begin));
  return {};
}

// Names the model of the exact run: shards that are compared with exact runs of different models
// are not of one run.
Status Evaluation::NameExact(const ModelFile& model) {
  TRY(const uint64_t weights, FindWeightsId(model, request_.engine.weights_folder));
  share_->settings += Format("against {:016x} {:016x}\n", model.id.fingerprint, weights);
  return {};
}

Status Evaluation::CheckReadsAlike(const ModelToLoad& other) const {
  TRY(const EvalText text, ReadEvalText(TextModel::Of(other), request_.text, request_.engine));
  if (text.n_vocab == text_.n_vocab && text.Hash() == text_hash_) return {};
  return Fail(Errc::kInvalidRequest,
              "{} and {} read the text as different tokens; only models of one vocabulary can be "
              "compared",
              request_.model, request_.exact_model);
}

// Bytes for the rows of both runs and of the file, and for the statistics.
uint64_t Evaluation::OwnBytes() const {
  return 3 * uint64_t{text_.n_vocab} * sizeof(float) +
         EvalStats::BytesFor(text_.n_evaluated(), text_.n_blocks(kBlockTokens));
}

Status Evaluation::MakeReference(ModelFile model) {
  ReferenceInfo info = ReferenceInfo::Of(model, text_);
  if (!request_.reference.empty()) {  // a file that is deleted with this run needs no number
    TRY(info.weights, FindWeightsId(model, request_.engine.weights_folder));
  }
  const std::string& kept = request_.reference.text();
  const bool is_there = !kept.empty() && !IsAbsent(kept);
  TRY(ReferenceReader reader,
      is_there ? ReferenceReader::Open(kept, info) : RunExact(std::move(model), info));
  reference_.emplace(std::move(reader));
  return {};
}

Result<ReferenceReader> Evaluation::RunExact(ModelFile model, const ReferenceInfo& info) {
  // Names include the shard, because processes on several machines or in containers may have equal
  // ids.
  const Shard shard = request_.shard.value_or(Shard());
  const OutputPath path = request_.reference.empty()
                              ? OutputPath::OfOwn(Format("{}/moestro-eval-{}-{}.exact", scratch_,
                                                         getpid(), shard.index))
                              : request_.reference;
  TRY(ReferenceWriter writer, ReferenceWriter::Create(path, info));
  EngineOptions options = ExactOf(request_.engine);
  options.caller_bytes += OwnBytes();
  {
    TRY(const std::unique_ptr<Engine> engine,
        NativeEngine::Open(std::move(model), options, request_.progress));
    Sequence sequence = engine->NewSequence();
    std::vector<float> row(text_.n_vocab);
    TRY_STATUS(DecodeText(*engine, text_, sequence, "exact run", request_.progress,
                          {.begin_window = [] {},
                           .evaluate = [&](std::span<const float> logits, Token) -> Status {
                             LogSoftmax(logits, row);
                             return writer.Add(row);
                           }}));
  }
  TRY_STATUS(writer.Finish());
  Result<ReferenceReader> reader = ReferenceReader::Open(path.text(), info);
  // The name is removed at once: the open file stays readable, and disappears however this process
  // ends.
  std::error_code ignored;
  if (request_.reference.empty()) std::filesystem::remove(path.text(), ignored);
  return reader;
}

Result<EvalResult> Evaluation::Run(EngineOptions options) {
  EvalStats stats(text_.n_evaluated(), text_.n_blocks(kBlockTokens));
  TRY(EvalResult result, RunInto(std::move(options), stats));
  result.figures = stats.Figures();
  return result;
}

Result<ShardInfo> Evaluation::RunShard(const EngineOptions& options, const OutputPath& path) {
  EvalStats stats(text_.n_evaluated(), text_.n_blocks(kBlockTokens));
  if (text_.windows.empty()) {
    TRY_STATUS(WriteShard(path, *share_, {}));
    return *share_;
  }
  TRY_STATUS(RunInto(options, stats));
  TRY_STATUS(WriteShard(path, *share_, EncodeSums(stats.Sums())));
  return *share_;
}

// Opens an engine with `options` and runs it over the windows.
Result<EvalResult> Evaluation::RunInto(EngineOptions options, EvalStats& stats) {
  options.caller_bytes += OwnBytes();
  TRY(const std::unique_ptr<Engine> engine, OpenEngine(request_.model, options, request_.progress));
  std::vector<float> row(text_.n_vocab);
  uint64_t index = 0;
  const auto evaluate = [&](std::span<const float> logits, Token next) -> Status {
    LogSoftmax(logits, row);
    if (!reference_) {
      stats.Add(row, next);
      return {};
    }
    TRY(const std::span<const float> exact, reference_->Row(index++));
    stats.Add(row, exact, next);
    return {};
  };
  Sequence sequence = engine->NewSequence();
  EvalResult result{.windows = text_.windows.size()};
  {
    const AskedBytes asked(*engine);
    TRY_STATUS(DecodeText(*engine, text_, sequence, "evaluate", request_.progress,
                          {.begin_window = [&] { stats.BeginWindow(); }, .evaluate = evaluate}));
    result.asked_bytes = asked.bytes();
  }
  TRY(result.report, MakeReport(*engine, sequence, true));
  return result;
}

namespace {

constexpr size_t kMostCombinations = 1000;

// The parts of `text` between separators, at least one.
std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

double KlOf(const EvalPoint& point) { return point.figures.against->kl_mean.value; }

}  // namespace

Result<std::vector<KnobSettings>> ParseSweep(std::string_view text) {
  std::vector<KnobSettings> all = {{}};
  for (const std::string& part : Split(text, ';')) {
    const size_t equals = part.find('=');
    if (equals == std::string::npos) {
      return Fail(Errc::kUsage, "'{}' is no sweep; write for example cache=25%,50%", part);
    }
    const std::string knob = part.substr(0, equals);
    if (std::ranges::contains(all.front(), knob, &KnobSetting::knob)) {
      return Fail(Errc::kUsage, "{} comes twice; write all its values once: {}=A,B", knob, knob);
    }
    std::vector<KnobSettings> combined;
    const std::vector<std::string> values = Split(std::string_view(part).substr(equals + 1), ',');
    if (all.size() * values.size() > kMostCombinations) {
      return Fail(Errc::kUsage, "a sweep of more than {} combinations; leave some values out",
                  kMostCombinations);
    }
    for (const std::string& value : values) {
      EngineOptions unused;
      TRY_STATUS(SetKnob(unused, knob, value));
    }
    for (const KnobSettings& before : all) {
      for (const std::string& value : values) {
        combined.push_back(before);
        combined.back().push_back({.knob = knob, .value = value});
      }
    }
    all = std::move(combined);
  }
  return all;
}

EngineOptions WithSettings(EngineOptions options, const KnobSettings& settings) {
  for (const KnobSetting& s : settings) CHECK(SetKnob(options, s.knob, s.value).has_value());
  return options;
}

EvalPoint ToPoint(KnobSettings settings, const EvalResult& result) {
  const PhaseStats& decode = result.report.stats.decode;
  return {.settings = std::move(settings),
          .figures = result.figures,
          .bytes_per_token = result.bytes_per_token(),
          .hit_rate = decode.hit_rate(),
          .decode_tps = decode.tokens_per_second(),
          .percent_of_bound =
              DecodeBound(result.report.stats, result.report.probes).percent(decode.seconds)};
}

MeasuredSetting ToMeasured(const EngineOptions& base, const KnobSettings& settings,
                           const EvalResult& result) {
  const EngineOptions options = WithSettings(base, settings);
  MeasuredSetting measured{.knobs = settings};
  for (KnobSetting& changed : ChangedKnobs(options)) {
    if (std::ranges::contains(settings, changed.knob, &KnobSetting::knob)) continue;
    measured.knobs.push_back(std::move(changed));
  }
  for (KnobSetting& s : measured.knobs) {
    const bool is_file = (s.knob == "low" || s.knob == "norms") && !s.value.empty();
    if (is_file) s.value = std::filesystem::absolute(s.value).lexically_normal().string();
  }
  const EvalFigures::Against& against = *result.figures.against;
  measured.is_exact = options.is_exact();
  measured.kl_mean = against.kl_mean.value;
  if (std::isfinite(against.kl_mean.error)) measured.kl_se = against.kl_mean.error;
  measured.decode_tps = result.report.stats.decode.tokens_per_second();
  measured.bytes_per_token = result.bytes_per_token();
  measured.perplexity = result.figures.perplexity.value;
  measured.slots = result.report.memory.n_slots;
  measured.low_slots = result.report.memory.n_low_slots;
  return measured;
}

std::vector<bool> ParetoFront(const std::vector<EvalPoint>& points) {
  std::vector<bool> front;
  for (const EvalPoint& point : points) {
    front.push_back(std::ranges::none_of(points, [&](const EvalPoint& other) {
      const bool is_as_good = other.decode_tps >= point.decode_tps && KlOf(other) <= KlOf(point);
      return is_as_good && (other.decode_tps > point.decode_tps || KlOf(other) < KlOf(point));
    }));
  }
  return front;
}

}  // namespace moestro
