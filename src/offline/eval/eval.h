// SPDX-License-Identifier: MIT
// Runs a model over texts as a user's run would, token by token, and measures how well it predicts
// them and how far its log-probabilities are from those of the exact run of the same engine.
//
// The exact run comes first and leaves its log-probabilities in a file; then its engine goes, and
// the run to be judged has all the memory. Two engines never live at once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/output_file.h"
#include "base/result.h"
#include "core/run_identity.h"
#include "engine/engine.h"
#include "engine/engine_options.h"
#include "engine/run_report.h"
#include "learned/quality_choice.h"
#include "load/open_engine.h"
#include "offline/eval/eval_stats.h"
#include "offline/eval/eval_text.h"
#include "offline/shard_file.h"

namespace moestro {

// Options of the exact run that a run with `options` is compared with.
EngineOptions ExactOf(EngineOptions options);

struct EvalRequest {
  std::string model;
  EngineOptions engine;
  TextRequest text;
  bool against_exact = false;
  // Model of the exact run, in place of `model`: the source of a fitted one.
  std::string exact_model = {};
  std::string scratch = {};   // folder for the exact run's rows; empty: see ScratchFolder()
  OutputPath reference = {};  // a file that keeps the exact rows: read if it exists, else written
  std::optional<Shard> shard = {};  // evaluates its windows alone
  Progress progress = {};           // may be empty
};

struct EvalResult {
  EvalFigures figures = {};
  RunReport report = {};     // report of the judged run, all of which is decode
  uint64_t asked_bytes = 0;  // AskedBytes in eval.cc
  uint64_t windows = 0;

  // Bytes per evaluated position, positions before score_from included, because they cost as much.
  double bytes_per_token() const;
};

// One text, one exact run, any number of runs to be judged.
class Evaluation {
 public:
  // Checks the request, tokenizes, and makes the exact run if the request has one and the shard has
  // windows. Errors: those of ModelToLoad::Open(), ScratchFolder(), ReadEvalText(), the engine and
  // the reference's file; kInvalidRequest if the two models read the text as other tokens.
  static Result<Evaluation> Prepare(EvalRequest request);
  // Opens an engine with `options` and runs it over the text. Errors: the engine's; kIo.
  Result<EvalResult> Run(EngineOptions options);
  // Runs the text as Run() does, and writes the sums of the windows to a file, for MergeEval().
  // REQUIRES: the request has a shard.
  Result<ShardInfo> RunShard(const EngineOptions& options, const OutputPath& path);
  const ModelId& model() const { return model_; }

 private:
  Evaluation(EvalRequest request, ModelId model, EvalText text)
      : request_(std::move(request)),
        model_(std::move(model)),
        text_(std::move(text)),
        text_hash_(text_.Hash()) {}

  Status TakeShare(const ModelToLoad& model);
  Status NameExact(const ModelFile& model);
  Status MakeReference(ModelFile model);  // model that runs exactly
  Result<ReferenceReader> RunExact(ModelFile model, const ReferenceInfo& info);
  Status CheckReadsAlike(const ModelToLoad& other) const;
  Result<EvalResult> RunInto(EngineOptions options, EvalStats& stats);
  uint64_t OwnBytes() const;  // beside an engine

  EvalRequest request_;
  ModelId model_;
  std::string scratch_;
  EvalText text_;
  uint64_t text_hash_ = 0;               // hash of all windows, those of other shards included
  std::optional<ShardInfo> share_ = {};  // with a shard
  std::optional<ReferenceReader> reference_;
};

// `eval --sweep`: the same text with every combination of some knobs' values.

// Parses "cache=25%,50%;prefetch=0,1" into every combination, the last knob changing fastest.
// kUsage for errors of SetKnob(), for a knob that comes twice, and for more than 1000 combinations.
Result<std::vector<KnobSettings>> ParseSweep(std::string_view text);
// REQUIRES: the settings come from ParseSweep().
EngineOptions WithSettings(EngineOptions options, const KnobSettings& settings);

struct EvalPoint {
  KnobSettings settings;
  EvalFigures figures;  // with `against`
  double bytes_per_token = 0.0;
  double hit_rate = 0.0;
  double decode_tps = 0.0;
  double percent_of_bound = 0.0;
};
EvalPoint ToPoint(KnobSettings settings, const EvalResult& result);

// The measured setting of a run with `settings` over `base`, for a file: every knob that another
// run needs to do the same, files by their whole paths.
MeasuredSetting ToMeasured(const EngineOptions& base, const KnobSettings& settings,
                           const EvalResult& result);

// For each point: true if no other point is at least as fast with at most its mean KL, and better
// in one of the two.
std::vector<bool> ParetoFront(const std::vector<EvalPoint>& points);

}  // namespace moestro
