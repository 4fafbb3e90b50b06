// SPDX-License-Identifier: MIT
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/cache_files.h"
#include "base/json.h"
#include "base/terminal.h"
#include "base/text.h"
#include "cli/common_flags.h"
#include "cli/flags.h"
#include "cli/program.h"
#include "cli/report.h"
#include "cli/terminal_session.h"
#include "commands/commands.h"
#include "commands/named_model.h"
#include "commands/plan_report.h"
#include "commands/recording.h"
#include "core/random_tokens.h"
#include "engine/append.h"
#include "engine/recorded_routing.h"
#include "learned/kept_facts.h"
#include "load/open_engine.h"
#include "model/expert_tensors.h"
#include "native/native_engine.h"
#include "speed/benchmark.h"
#include "text/draft_control.h"
#include "trace/trace_file.h"

namespace moestro {
namespace {

constexpr uint32_t kDecodeProbes = 4;  // of memory, before and between a decode's steps, at most

struct BenchOptions {
  CommonOptions common;
  std::string model;
  NamedModelOptions named;
  uint32_t prefill = 128;
  uint32_t decode = 48;
  uint32_t depth = 0;
  uint32_t warmup = 0;
  uint32_t sequences = 1;
  double idle = 0.0;  // seconds between the start and the first token
  bool preload = false;
  uint32_t runs = 1;
  OutputPath record;    // where the run's own trace goes; empty: nowhere
  std::string routing;  // a trace whose choices replace the routers'; empty: none
  DraftOptions draft;
  std::optional<double> acceptance;  // of drafts, forced
  std::optional<Flag> ctx;           // --ctx

  // Positions of the longest sequence.
  uint64_t positions() const {
    return std::max(uint64_t{depth} + prefill + decode, uint64_t{warmup});
  }
};

Features FeaturesOf(const BenchOptions& options) {
  Features features = FeaturesOf(options.common.engine);
  features.draft = options.draft.is_on();
  features.sequences = options.sequences > 1;
  return features;
}

struct Measured {
  RunReport report;
  double load_seconds = 0.0;
  std::string logits_hash;
  std::string engine;
  std::string arch;
  uint32_t chunk = 0;
  uint32_t threads = 0;
  std::optional<Forecast> forecast = {};
  std::optional<PlannedSpeed> planned = {};
  DraftControl::Figures drafts = {};  // zeros without drafts
};

// Lets the engine work while idle, as if a user wrote the prompt meanwhile.
void Idle(double seconds, Engine& engine) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (Clock::now() < end && engine.WorkWhileIdle()) {
  }
  std::this_thread::sleep_until(end);
}

// Fills the slots, by reading or by evaluating and forgetting other tokens than those measured.
Status WarmUp(const BenchOptions& options, Engine& engine) {
  if (options.preload) TRY_STATUS(engine.Preload());
  engine.AwaitHosts();
  if (options.warmup == 0) return {};
  Sequence other = engine.NewSequence();
  std::vector<Token> tokens = RandomTokens(options.warmup, engine.facts().n_vocab,
                                           options.common.seed.value_or(kDefaultSeed) + 1);
  MakePrompt(engine.facts().encoder, std::min<size_t>(tokens.size(), options.prefill), tokens);
  TRY_STATUS(Append(engine, other, tokens));
  engine.stats() = {};
  return {};
}

// Checks that the tokens fit, before they are generated.
Status CheckFits(const BenchOptions& options, const Engine& engine) {
  const uint64_t tokens = options.positions();
  if (tokens <= engine.n_ctx()) return {};
  return Fail(Errc::kInvalidRequest,
              "{} tokens do not fit a context of {}; raise --ctx (this model allows {})", tokens,
              engine.n_ctx(), engine.facts().n_ctx_train);
}

// The most requests that the measured decode can make.
DecodeShape DecodeShapeOf(const BenchOptions& options, const DraftOptions& draft) {
  const EngineOptions& engine = options.common.engine;
  DecodeShape shape{.steps = options.decode, .rows = options.sequences};
  if (engine.little.is_on()) ++shape.passes;
  if (!engine.low.empty()) ++shape.copies;
  if (draft.is_on()) shape.rows += draft.most;
  if (draft.kind == DraftKind::kLittle) shape.passes += draft.most;
  return shape;
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
        CheckLittle(little, engine.id().shape.n_used, !options.common.engine.low.empty()));
    const Status has_it = created->CheckLittle(used);
    if (!has_it)
      return Fail(has_it.error().code, "{}: {}", options.routing, has_it.error().message);
  }
  routing.emplace(*std::move(created));
  TRY(NativeEngine* const native, AsNative(engine, "--routing"));
  native->SetRoutingOverride(
      [&routing](ExpertLayerId layer, Routing& of_layer, RoutedAhead& ahead) {
        routing->Apply(layer, of_layer, ahead);
      });
  return {};
}

// A file with holes for experts is read from nowhere.
Status CheckHasWeights(const std::string& path, const GgufFile& file) {
  TRY(const auto is_sparse, file.FindBool(kSparseKey));
  if (!is_sparse.value_or(false)) return {};
  return Fail(Errc::kInvalidRequest,
              "{}: its experts are holes (synth --sparse), so that no speed of it means anything; "
              "record its routing with 'moestro trace' and price it with 'moestro sim'",
              path);
}

// Decodes, with probes before the steps, between them and behind them, which count in no phase.
Status Decode(const BenchOptions& options, SideBySide& rows, Engine& engine, DecodeLimit& limit,
              ProbedRate& disk, ProgressBar& bar) {
  if (options.decode == 0) return {};
  TRY(const double rate, engine.ProbeDiskBandwidth());
  disk.Add(rate);
  const uint32_t between = (options.decode + kDecodeProbes - 1) / kDecodeProbes;
  uint32_t probe_at = 0;
  while (rows.decoded() < options.decode) {
    if (rows.decoded() >= probe_at) {
      TRY_STATUS(limit.Probe());
      probe_at += between;
    }
    bar.Update("decode", rows.decoded(), options.decode);
    TRY_STATUS(rows.Decode());
  }
  return limit.Probe();
}

Result<std::optional<Probes>> ProbeTogether(Engine& engine, const SideBySide& rows) {
  TRY(const std::optional<Engine::Together> both, engine.ProbeTogether(rows.sequences()));
  if (!both) return std::optional<Probes>();
  const auto n = static_cast<uint64_t>(rows.sequences().size());
  Probes probes{.compute_seconds_per_token = both->compute_seconds / static_cast<double>(n),
                .rows_per_step = n};
  probes.disk_bandwidth.Add(both->disk_bandwidth);
  return std::optional(probes);
}

// One run with a new engine. Without a warm-up it is cold: its slots are empty, and the first token
// counts.
Result<Measured> RunOnce(const BenchOptions& options, ProgressBar& bar) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  TRY(ModelToLoad model, ModelToLoad::Open(options.model, options.common.engine.engine));
  TRY_STATUS(CheckHasWeights(options.model, model.gguf()));
  EngineOptions engine_options = options.common.engine;
  TRY(const DraftOptions draft, PrepareDraft(options.draft, model, engine_options));
  engine_options.caller_bytes +=
      DecodeLimit::BytesFor(model.id().shape, DecodeShapeOf(options, draft));
  TRY(const std::unique_ptr<Engine> engine,
      OpenEngine(std::move(model), engine_options, ShowOn(bar)));
  Measured run;
  run.load_seconds = std::chrono::duration<double>(Clock::now() - start).count();
  run.engine = engine->facts().description;
  run.arch = engine->facts().arch_name;
  run.chunk = engine->chunk();
  TRY_STATUS(CheckFits(options, *engine));
  std::optional<TraceRouting> routing;
  if (!options.routing.empty()) {
    TRY_STATUS(UseRouting(options, *engine, routing));
  }
  std::optional<Recording> recording;
  if (!options.record.empty()) {
    TRY_STATUS(Recording::Begin(*engine, recording));
  }
  Idle(options.idle, *engine);
  TRY_STATUS(WarmUp(options, *engine));
  SideBySide rows(*engine, {.sequences = options.sequences,
                            .depth = options.depth,
                            .prefill = options.prefill,
                            .decode = options.decode,
                            .seed = options.common.seed.value_or(kDefaultSeed),
                            .draft = draft,
                            .acceptance = options.acceptance});
  TRY_STATUS(rows.MakeUpDepth());
  PhaseStats prefill;
  if (options.prefill > 0) {
    TRY_STATUS(rows.Prefill());
    // A single token is a decode step.
    prefill = options.prefill > 1 ? engine->stats().prefill : engine->stats().decode;
  }
  engine->stats() = {};
  ProbedRate disk;
  DecodeLimit limit(*engine, DecodeShapeOf(options, draft));
  TRY_STATUS(Decode(options, rows, *engine, limit, disk, bar));
  if (recording) recording->Stop();
  limit.Stop();
  bar.Clear();
  run.logits_hash = rows.hash();
  run.drafts = rows.draft_figures();
  TRY(run.report, MakeReport(*engine, rows.sequences(), true, disk));
  run.report.stats.prefill = prefill;
  run.planned = FindPlanned(CacheFolder(), *engine, run.report);
  run.threads = engine->facts().threads;
  // Random tokens are routed otherwise than text: better than nothing, and no more.
  if (!KeptCaching(CacheFolder(), engine->facts().id.fingerprint)) {
    KeepCachingSeen(CacheFolder(), *engine, run.report);
  }
  if (run.report.stats.decode.bytes_read > 0) {
    TRY(run.report.together, ProbeTogether(*engine, rows));
  }
  if (options.decode > 0) run.report.limit = limit.Find(run.report);
  if (recording) {
    TRY(run.forecast,
        recording->Finish(*rows.sequences().front(), options.common.engine, options.record));
  }
  return run;
}

Json ToJson(const BenchOptions& options, const Measured& run) {
  Json object = Json::Object();
  object.Set("model", options.model).Set("architecture", run.arch);
  AddReport(object, run.report);
  if (run.planned) AddPlanned(object, *run.planned);
  if (options.draft.is_on()) {
    object.Set("plain_token_seconds", run.drafts.plain_seconds)
        .Set("drafted_token_seconds", run.drafts.drafted_seconds)
        .Set("drafted_is_measured", run.drafts.is_measured);
  }
  object.Set("threads", run.threads)
      .Set("ctx", options.common.engine.ctx)
      .Set("chunk", run.chunk)
      .Set("seed", options.common.seed.value_or(kDefaultSeed))
      .Set("routing", options.routing)
      .Set("sequences", options.sequences)
      .Set("depth", options.depth)
      .Set("warmup_tokens", options.warmup)
      .Set("load_seconds", run.load_seconds)
      .Set("logits_hash", run.logits_hash)
      .Set("engine", run.engine);
  if (run.forecast) AddForecast(object, *run.forecast, run.report.stats.decode);
  return object;
}

std::string Table(const Json& json) {
  std::string text;
  for (const std::string& key : json.keys()) {
    text += Format("{:28} {}\n", key, json.Find(key)->text().value_or(json.Find(key)->Dump()));
  }
  return text;
}

// Refuses runs that the simulator's clock has no costs for: it replays one row of decode after the
// other on the CPU, from cold. The trace is replayed in the end, without paths.
Status CheckRecording(const BenchOptions& options) {
  const EngineOptions& engine = options.common.engine;
  if (engine.predictor == "paths") {
    return Fail(Errc::kUsage,
                "--record replays the run, and a trace has no paths beside it; leave out "
                "--predictor paths");
  }
  if (options.sequences == 1 && !options.draft.is_on() && engine.has_exact_experts() &&
      options.decode > 0 && options.warmup == 0) {
    return {};
  }
  return Fail(Errc::kUsage,
              "--record is of one sequence's decode from cold with every expert as it is; leave "
              "out --sequences, --draft, --little, --warmup and what makes misses cheaper");
}

Status CheckUsage(const BenchOptions& options) {
  if (!options.record.empty()) TRY_STATUS(CheckRecording(options));
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
  TRY_STATUS(CheckTogether(FeaturesOf(options)));
  if (options.draft.is_on() && !options.routing.empty()) {
    return Fail(Errc::kUsage,
                "--routing gives every row the next token's experts; leave out --draft");
  }
  if (options.common.engine.little.fallback_share && !options.common.engine.little.is_on()) {
    return Fail(Errc::kUsage, "--gamma-quantile is for --little");
  }
  // A recorded run is cold, as its replay is.
  if (!options.record.empty()) options.common.engine.recall.is_cold = true;
  options.common.engine.sequences = options.sequences;
  if (!options.ctx->is_given()) {
    const uint64_t most = std::numeric_limits<uint32_t>::max();
    options.common.engine.ctx = static_cast<uint32_t>(
        std::clamp<uint64_t>(options.positions(), options.common.engine.ctx, most));
  }
  TRY(options.model, FindNamedModel(options.model, options.named, options.common.engine));
  options.record.Spare(PartsOfSplit(options.model));
  TRY_STATUS(options.record.Check());
  TRY_STATUS(ApplyQuality(options.common.quality, options.model, options.common.engine));
  TRY_STATUS(CheckUsage(options));
  ProgressBar bar(ProgressBar::Stderr());
  std::vector<Json> runs;
  std::string summary;
  for (uint32_t i = 0; i < options.runs; ++i) {
    options.common.engine.recall.keeps = i + 1 == options.runs;  // all begin alike
    TRY(const Measured run, RunOnce(options, bar));
    options.common.engine.planned = {};  // called for the first run only: all have one plan
    runs.push_back(ToJson(options, run));
    summary = SummaryText(run.report);
    summary += DraftFiguresText(run.drafts);
    if (run.planned) summary += PlannedText(*run.planned, run.report);
    if (run.forecast) summary += ForecastText(*run.forecast, run.report.stats.decode);
    LogInfo("run {} of {}: {}", i + 1, options.runs, runs.back().Dump());
  }
  Json result = MediansOf(runs);
  result.Set("runs", options.runs);
  Output output(STDOUT_FILENO);
  if (options.common.json) return output.Write(result.Dump() + "\n");
  if (options.depth > 0) {
    summary += Format("depth    after {} positions with made-up keys and values\n", options.depth);
  }
  if (!options.routing.empty()) {
    summary += Format("routing  recorded: {}; not the model's own\n", options.routing);
  }
  return output.Write(options.runs == 1 ? summary : Table(result));
}

void AddDraftFlags(Flags bench, const std::shared_ptr<BenchOptions>& options) {
  const Flag draft = AddDraftFlag(bench, options->draft);
  bench
      .Add("--draft-acceptance", options->acceptance,
           "each guess is replaced by the token to come with this probability, else by another "
           "one: random tokens cannot be guessed")
      .Between(0.0, 1.0)
      .Needs(draft);
}

}  // namespace

void AddBench(CommandLine& line) {
  auto options = std::make_shared<BenchOptions>();
  Flags bench =
      line.AddCommand(CommandNamed("bench"), [options] { return ExitCode(Run(*options)); });
  bench.Footer(
      "Evaluates random tokens, so that models without a vocabulary work too, and counts "
      "everything "
      "from\nthe first token on; --cold: with no expert in memory. percent_of_bound compares with "
      "what the disk "
      "and "
      "the\nprocessor of this machine would allow for the same work; percent_of_limit with what "
      "its disk\nand memory would allow perfect kernels and a policy that knows the future.\n"
      "Example: moestro bench model.gguf --ram 6G -p 128 -n 48 --json");
  bench.Add("MODEL", options->model, "GGUF file or owner/repo:QUANT").Required();
  AddNamedModelFlags(bench, options->named);
  bench.Add("-p,--n-prompt", options->prefill, "tokens to prefill").Type("N").ShowDefault();
  bench.Add("-n,--n-gen", options->decode, "tokens to decode").Type("N").ShowDefault();
  bench
      .Add("--depth", options->depth,
           "positions before the first token whose keys and values are made up, not computed: what "
           "a long context costs; without --ctx the context is long enough")
      .Type("N")
      .ShowDefault();
  bench
      .Add("--sequences", options->sequences,
           "independent sequences that are decoded together, one row of each in a step")
      .Type("N")
      .Between(1U, 64U)
      .ShowDefault();
  bench
      .Add("--idle", options->idle,
           "seconds between the start and the first token, as if a user wrote the prompt; a start "
           "that is not cold reads on meanwhile")
      .Type("SECONDS")
      .Between(0.0, 3600.0);
  bench.AddSwitch("--preload", options->preload,
                  "every expert in memory before the clock starts; needs a budget for all of them");
  bench
      .Add("--routing", options->routing,
           "choices recorded by 'moestro trace' instead of the routers': real routing over "
           "synthetic weights")
      .Type("FILE");
  bench
      .AddOutput("--record", options->record,
                 "the run's routing and what decode costs here, measured after it, as a trace for "
                 "'moestro sim'; says what the simulator makes of both")
      .Excludes("--preload");
  AddDraftFlags(bench, options);
  bench.Add("--warmup", options->warmup, "other tokens evaluated before the clock starts")
      .Type("N")
      .ShowDefault();
  bench.Add("-r,--repetitions", options->runs, "runs; medians are reported")
      .Type("RUNS")
      .Between(1U, 1000U)
      .ShowDefault();
  options->ctx = AddCommonFlags(bench, options->common);
  AddColdFlag(bench, options->common);
  AddQualityFlags(bench, options->common.quality);
  bench
      .Add("--gamma-quantile", options->common.engine.little.fallback_share,
           "in place of --gamma: about this share of the tokens, the least sure ones, is decoded "
           "again; random weights are never sure")
      .Between(0.0, 1.0)
      .Excludes("--gamma");
}

}  // namespace moestro
