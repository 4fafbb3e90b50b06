// SPDX-License-Identifier: MIT
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/format.h"
#include "base/json.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/quantile.h"
#include "cli/commands.h"
#include "cli/common_flags.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "cli/report.h"
#include "cli/terminal_session.h"
#include "core/batch.h"
#include "core/random_tokens.h"
#include "engine/append.h"
#include "engine/engine.h"
#include "offline/trace_routing.h"
#include "trace/trace_file.h"

namespace moestro {
namespace {

struct BenchOptions {
  CommonOptions common;
  std::string model;
  uint32_t prefill = 128;
  uint32_t decode = 48;
  uint32_t warmup = 0;
  uint32_t sequences = 1;
  bool preload = false;
  uint32_t runs = 1;
  std::string routing;  // a trace whose choices replace the routers'; empty: none
};

struct Measured {
  RunReport report;
  double load_seconds = 0.0;
  std::string logits_hash;
  std::string engine;
  std::string arch;
};

// Fills the slots, by reading or by evaluating and forgetting other tokens than those measured.
Status WarmUp(const BenchOptions& options, Engine& engine) {
  if (options.preload) TRY_STATUS(engine.Preload());
  if (options.warmup == 0) return {};
  Sequence other = engine.NewSequence();
  TRY_STATUS(Append(engine, other,
                    RandomTokens(options.warmup, engine.spec().n_vocab,
                                 options.common.seed.value_or(kDefaultSeed) + 1)));
  engine.ResetStats();
  return {};
}

// Before so many tokens are made up.
Status CheckFits(const BenchOptions& options, const Engine& engine) {
  const uint64_t tokens =
      std::max(uint64_t{options.prefill} + options.decode, uint64_t{options.warmup});
  if (tokens <= engine.n_ctx()) return {};
  return Fail(Errc::kInvalidRequest,
              "{} tokens do not fit a context of {}; raise --ctx (this model allows {})", tokens,
              engine.n_ctx(), engine.spec().n_ctx_train);
}

// Recorded choices instead of the routers'.
Status UseRouting(const BenchOptions& options, Engine& engine,
                  std::optional<TraceRouting>& routing) {
  TRY(Trace trace, ReadTrace(options.routing));
  if (options.common.engine.lossy.prefer_resident > 0.0 && !trace.info().has_candidates) {
    return Fail(Errc::kInvalidRequest,
                "{}: does not say who else could run, which --prefer-resident needs; record it "
                "with 'moestro trace --candidates'",
                options.routing);
  }
  Result<TraceRouting> created = TraceRouting::Create(std::move(trace), engine.id());
  if (!created) {
    return Fail(created.error().code, "{}: {}", options.routing, created.error().message);
  }
  const LittleOptions& little = options.common.engine.little;
  if (little.is_on()) {
    TRY(const uint32_t used,
        CheckLittle(little, engine.spec().router.n_used, !options.common.engine.low.empty()));
    const Status has_it = created->CheckLittle(used);
    if (!has_it)
      return Fail(has_it.error().code, "{}: {}", options.routing, has_it.error().message);
  }
  routing.emplace(*std::move(created));
  engine.SetRoutingOverride(
      [&routing](LayerId layer, Routing& of_layer, std::vector<ExpertId>& ahead) {
        routing->Apply(layer, of_layer, ahead);
      });
  return {};
}

// Sequences of random tokens, each with its own. A decode step is one row of each.
class SideBySide {
 public:
  SideBySide(const BenchOptions& options, Engine& engine) : options_(options), engine_(engine) {
    const uint32_t seed = options.common.seed.value_or(kDefaultSeed);
    for (uint32_t i = 0; i < options.sequences; ++i) {
      // The first one's are those of a run of one sequence; seed + 1 is the warm-up's.
      tokens_.push_back(RandomTokens(size_t{options.prefill} + options.decode,
                                     engine.spec().n_vocab, i == 0 ? seed : seed + 1 + i));
      sequences_.push_back(engine.NewSequence());
    }
    for (Sequence& sequence : sequences_) pointers_.push_back(&sequence);
  }

  Status Prefill() {
    for (size_t i = 0; i < sequences_.size(); ++i) {
      TRY(const std::span<const float> logits,
          Append(engine_, sequences_[i], std::span(tokens_[i]).first(options_.prefill)));
      hash_ = HashLogits(logits);
    }
    return {};
  }
  Status Decode() {
    Batch batch;
    for (size_t i = 0; i < sequences_.size(); ++i) {
      const uint32_t at = sequences_[i].position();
      batch.rows.push_back({.sequence = sequences_[i].id(),
                            .position = at,
                            .token = tokens_[i][at],
                            .wants_logits = true});
    }
    const bool is_last = batch.rows.front().position + 1 == tokens_.front().size();
    return engine_.Step(batch, [&](size_t, std::span<const float> logits) {
      if (is_last) hash_ = HashLogits(logits);
    });
  }

  std::span<Sequence* const> sequences() const { return pointers_; }
  const std::string& hash() const { return hash_; }  // of the last row's last logits

 private:
  const BenchOptions& options_;
  Engine& engine_;
  std::vector<std::vector<Token>> tokens_;
  std::vector<Sequence> sequences_;
  std::vector<Sequence*> pointers_;
  std::string hash_;
};

// One run with a new engine. Without a warm-up it is cold: its slots are empty and everything from
// the first token on is counted.
Result<Measured> RunOnce(const BenchOptions& options, ProgressBar& bar) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  TRY(const std::unique_ptr<Engine> engine,
      Engine::Open(options.model, options.common.engine, ShowOn(bar)));
  Measured run;
  run.load_seconds = std::chrono::duration<double>(Clock::now() - start).count();
  run.engine = engine->description();
  run.arch = engine->spec().arch_name;
  TRY_STATUS(CheckFits(options, *engine));
  std::optional<TraceRouting> routing;
  if (!options.routing.empty()) {
    TRY_STATUS(UseRouting(options, *engine, routing));
  }
  TRY_STATUS(WarmUp(options, *engine));
  SideBySide rows(options, *engine);
  PhaseStats prefill;
  if (options.prefill > 0) {
    TRY_STATUS(rows.Prefill());
    // A single token is a decode step.
    prefill = options.prefill > 1 ? engine->stats().prefill : engine->stats().decode;
  }
  engine->ResetStats();
  for (uint32_t i = 0; i < options.decode; ++i) {
    bar.Update("decode", i, options.decode);
    TRY_STATUS(rows.Decode());
  }
  bar.Clear();
  run.logits_hash = rows.hash();
  TRY(run.report, MakeReport(*engine, rows.sequences(), true));
  run.report.stats.prefill = prefill;
  return run;
}

Json ToJson(const BenchOptions& options, const Measured& run) {
  Json object = Json::Object();
  object.Set("model", options.model).Set("architecture", run.arch);
  AddReport(object, run.report);
  object.Set("threads", options.common.engine.threads)
      .Set("ctx", options.common.engine.ctx)
      .Set("chunk", options.common.engine.chunk)
      .Set("seed", options.common.seed.value_or(kDefaultSeed))
      .Set("routing", options.routing)
      .Set("sequences", options.sequences)
      .Set("warmup_tokens", options.warmup)
      .Set("load_seconds", run.load_seconds)
      .Set("logits_hash", run.logits_hash)
      .Set("engine", run.engine);
  return object;
}

// Every number becomes the median of the runs; other values are those of the first one.
Json Medians(const std::vector<Json>& runs) {
  Json medians = Json::Object();
  for (const std::string& key : runs.front().keys()) {
    std::vector<double> values;
    for (const Json& run : runs) {
      if (const auto number = run.Find(key)->number()) values.push_back(*number);
    }
    const bool is_number = values.size() == runs.size();
    const auto [low, high] = std::ranges::minmax(values.empty() ? std::vector{0.0} : values);
    // What all runs agree on keeps its type: counts stay integers.
    medians.Set(key,
                is_number && low != high ? Json(Median(values)) : runs.front().Find(key)->Copy());
  }
  return medians;
}

std::string Table(const Json& json) {
  std::string text;
  for (const std::string& key : json.keys()) {
    text += Format("{:28} {}\n", key, json.Find(key)->text().value_or(json.Find(key)->Dump()));
  }
  return text;
}

Status CheckUsage(const BenchOptions& options) {
  if (options.prefill + options.decode == 0)
    return Fail(Errc::kUsage, "-p 0 -n 0 measures nothing");
  if (options.routing.empty() || !options.common.engine.little.is_on()) return {};
  if (options.sequences > 1) {
    return Fail(Errc::kUsage,
                "which of several rows is decoded again, recorded routing cannot tell; leave out "
                "one of --sequences, --little and --routing");
  }
  if (options.common.engine.lossy.prefer_resident > 0.0) {
    return Fail(Errc::kUsage,
                "a recorded little pass does not say who else could run; leave out one of "
                "--prefer-resident, --little and --routing");
  }
  return {};
}

Status Run(BenchOptions& options) {
  if (options.common.verbose) SetLogLevel(LogLevel::kInfo);
  options.common.engine.threads = ResolveThreads(options.common.engine.threads);
  options.common.engine.sequences = options.sequences;
  TRY_STATUS(ApplyQuality(options.common.quality, options.model, options.common.engine));
  TRY_STATUS(CheckUsage(options));
  ProgressBar bar(ProgressBar::Stderr());
  std::vector<Json> runs;
  std::string summary;
  for (uint32_t i = 0; i < options.runs; ++i) {
    TRY(const Measured run, RunOnce(options, bar));
    options.common.engine.planned = {};  // is the same again
    runs.push_back(ToJson(options, run));
    summary = SummaryText(run.report);
    LogInfo("run {} of {}: {}", i + 1, options.runs, runs.back().Dump());
  }
  Json result = Medians(runs);
  result.Set("runs", options.runs);
  Output output(STDOUT_FILENO);
  if (options.common.json) return output.Write(result.Dump() + "\n");
  if (!options.routing.empty()) {
    summary += Format("routing  recorded: {}; not the model's own\n", options.routing);
  }
  return output.Write(options.runs == 1 ? summary : Table(result));
}

}  // namespace

void AddBench(CommandLine& line) {
  auto options = std::make_shared<BenchOptions>();
  Flags bench = line.AddCommand("bench", "measure prefill and decode speed",
                                [options] { return ExitCode(Run(*options)); });
  bench.Footer(
      "Evaluates random tokens, so that models without a vocabulary work too, and counts "
      "everything "
      "from\nthe first token on with nothing cached. percent_of_bound compares with what the disk "
      "and "
      "the\nprocessor of this machine would allow for the same work.\n"
      "Example: moestro bench model.gguf --ram 6G -p 128 -n 48 --json");
  bench.Add("MODEL", options->model, "GGUF file").Required();
  bench.Add("-p,--n-prompt", options->prefill, "tokens to prefill").Type("N").ShowDefault();
  bench.Add("-n,--n-gen", options->decode, "tokens to decode").Type("N").ShowDefault();
  bench
      .Add("--sequences", options->sequences,
           "independent sequences that are decoded together, one row of each in a step")
      .Type("N")
      .Between(1U, 64U)
      .ShowDefault();
  bench.AddSwitch("--preload", options->preload,
                  "every expert in memory before the clock starts; needs a budget for all of them");
  bench
      .Add("--routing", options->routing,
           "choices recorded by 'moestro trace' instead of the routers': real routing over "
           "synthetic weights")
      .Type("FILE");
  bench.Add("--warmup", options->warmup, "other tokens evaluated before the clock starts")
      .Type("N")
      .ShowDefault();
  bench.Add("-r,--repetitions", options->runs, "runs; medians are reported")
      .Type("RUNS")
      .Between(1U, 1000U)
      .ShowDefault();
  AddCommonFlags(bench, options->common);
  AddQualityFlags(bench, options->common.quality);
}

}  // namespace moestro
