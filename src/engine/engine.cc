// SPDX-License-Identifier: MIT
// The composition root: the only file that knows every part.
#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "compute/device.h"
#include "compute/team.h"
#include "core/expert_catalog.h"
#include "decide/predictor.h"
#include "decide/prefetch_planner.h"
#include "engine/catalog.h"
#include "engine/dense_loader.h"
#include "engine/expert_exec.h"
#include "engine/forward.h"
#include "engine/memory_plan.h"
#include "engine/policy_source.h"
#include "graph/layer_graph.h"
#include "model/fingerprint.h"
#include "model/gguf_file.h"
#include "model/read_spec.h"
#include "model/weights.h"
#include "residency/lease_stream.h"
#include "residency/prefetcher.h"
#include "residency/residency.h"
#include "store/block_reader.h"
#include "store/probe.h"
#include "store/read_queue.h"
#include "trace/path_file.h"

namespace moestro {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Logits of several rows are computed this many bytes at a time.
constexpr uint64_t kLogitsBytes = 4 * kMiB;

uint32_t LogitsRows(const ModelSpec& spec, uint32_t chunk) {
  const uint64_t rows = kLogitsBytes / (uint64_t{spec.n_vocab} * sizeof(float));
  return static_cast<uint32_t>(std::clamp<uint64_t>(rows, 1, chunk));
}

}  // namespace

// Members in order of construction: later ones borrow from earlier ones.
struct Engine::Impl {
  EngineOptions options;
  PolicySource policy_source;
  PolicyChoice policy;  // in use
  GgufFile file;
  ModelSpec spec;
  ModelWeights weights;
  ExpertCatalog catalog;
  std::vector<LayerKernels> kernels;
  std::optional<CpuDevice> device;
  std::unique_ptr<BlockReader> reader;
  std::unique_ptr<ReadQueue> queue;
  DensePlan dense;
  ModelTensors tensors;
  StepBuffers buffers;
  KvCache kv;
  LookAheadRouters look_ahead_routers;
  std::unique_ptr<LayerGraph> graph;
  std::optional<Team> team;
  std::unique_ptr<Residency> residency;
  std::optional<PrefetchPlanner> planner;
  std::optional<Prefetcher> prefetcher;
  std::unique_ptr<ExpertExec> experts;
  std::optional<Forward> forward;

  MemoryPlan memory;
  uint32_t n_ctx = 0;
  uint32_t chunk = 0;
  uint32_t logits_rows = 1;
  PredictorChoice predictor_choice;
  uint32_t look_ahead = 0;
  double look_ahead_share = 0.0;  // of the dense part's time that looking ahead takes
  uint32_t position = 0;
  std::optional<Token> last_token;
  RunStats stats;
  Progress progress;

  explicit Impl(GgufFile f) : file(std::move(f)) {}

  Status Prepare(const EngineOptions& requested);
  Status Allocate();
  Result<PredictorChoice> ChoosePredictor() const;
  Status PreparePrefetch(const PlannedMemory& planned);
  Status Load();
  Status CheckTokens(std::span<const Token> tokens) const;
  Status Decode(Token token, uint32_t at);
  Status RunChunk(std::span<const Token> tokens, uint32_t first, const char* what);
  Status Counted(PhaseStats& phase, size_t n_tokens, const std::function<Status()>& work);
  void BeginSequence() {
    residency->BeginSequence();
    planner->BeginSequence();
  }
  void Report(const char* what, uint64_t done, uint64_t total) const {
    if (progress) progress(what, done, total);
  }
};

// Everything that can be known before memory is taken.
Status Engine::Impl::Prepare(const EngineOptions& requested) {
  options = requested;
  TRY(policy_source, PolicySource::Find(options, file.paths().front()));
  TRY(spec, ReadSpec(file));
  TRY(weights, ReadWeights(file, spec));
  catalog = MakeCatalog(weights);
  n_ctx = std::min(options.ctx, spec.n_ctx_train);
  if (n_ctx == 0)
    return Fail(Errc::kInvalidRequest, "a context of 0 tokens holds no prompt; set --ctx");
  chunk = std::clamp(options.chunk, 1U, n_ctx);
  logits_rows = LogitsRows(spec, chunk);
  look_ahead = std::min(options.prefetch, std::max(spec.n_layer, 1U) - 1);
  TRY(predictor_choice, ChoosePredictor());
  TRY(device, CpuDevice::Open(options.threads));
  TRY(kernels, FindLayerKernels(weights, options.own_kernels));
  TRY(const ReaderKind kind, ParseReaderKind(options.reader));
  TRY(reader, OpenReader({.kind = kind}, file.paths()));
  if (options.wrap_reader) reader = options.wrap_reader(std::move(reader));
  queue = std::make_unique<ReadQueue>(*reader, file.paths());
  dense = PlanDense(*device, weights, options.repack);
  return {};
}

Status Engine::Impl::Allocate() {
  const StepLimits step{
      .chunk = chunk, .n_ctx = n_ctx, .logits_rows = logits_rows, .look_ahead = look_ahead};
  TRY(buffers, StepBuffers::Allocate(spec, step));
  TRY(kv, KvCache::Allocate(spec, n_ctx));
  // The graph's worst case is known only once it has been built, which needs tensors with shapes.
  tensors = TensorsByRole(dense, weights);
  graph = std::make_unique<LayerGraph>(*device, spec, tensors, buffers, kv, n_ctx);
  if (look_ahead > 0) {
    TRY(look_ahead_routers, LookAheadRouters::Allocate(spec));
    graph->SetLookAhead(look_ahead_routers);
  }
  TRY_STATUS(graph->Reserve(chunk, logits_rows));
  TRY(team, Team::Create(*device));

  const ExpertExec::Limits limits = ExecLimits(spec, kernels, chunk);
  const uint64_t routers = look_ahead > 0 ? LookAheadRouters::BytesFor(spec) : 0;
  const uint64_t work = routers + StepBuffers::BytesFor(spec, step) + graph->buffer_bytes() +
                        ExpertExec::BytesFor(limits) + MultiplyScratch(spec, chunk);
  const FixedBytes fixed{.dense = dense.set.bytes(),
                         .kv = KvCache::BytesFor(spec, n_ctx),
                         .work = work,
                         .staging = dense.staging_bytes};
  TRY(const PlannedMemory planned,
      PlanMemory(options, catalog, reader->block(), spec.router.n_used, fixed));
  memory = planned.plan;
  TRY(policy, policy_source.Choose({.name = file.paths().front(),
                                    .id = Fingerprint(file),
                                    .n_layer = spec.n_layer,
                                    .n_expert = spec.router.n_expert,
                                    .n_used = spec.router.n_used},
                                   memory.n_slots));
  TRY(residency, Residency::Create(catalog, planned.slots, policy, reader->block(), *queue));
  TRY_STATUS(PreparePrefetch(planned));
  TRY(experts, ExpertExec::Create(*team, *residency, limits));
  forward.emplace(Forward::Parts{.spec = spec,
                                 .graph = *graph,
                                 .buffers = buffers,
                                 .residency = *residency,
                                 .prefetcher = *prefetcher,
                                 .experts = *experts,
                                 .kernels = kernels});
  return {};
}

Result<PredictorChoice> Engine::Impl::ChoosePredictor() const {
  TRY_STATUS(CheckPredictorName(options.predictor));
  if (look_ahead == 0) return PredictorChoice{.name = "none"};
  PredictorChoice choice{.name = options.predictor};
  if (choice.name != "paths") return choice;
  const std::string& model = file.paths().front();
  const std::string path = options.paths.empty() ? PathsNameOf(model) : options.paths;
  auto paths = ReadPaths(path);
  if (!paths && paths.error().code == Errc::kIo) {
    return Fail(Errc::kIo, "{}; learn them with 'moestro profile {} --text FILE'",
                paths.error().message, model);
  }
  if (!paths) return std::unexpected(std::move(paths).error());
  TRY_STATUS(CheckPathsFit(
      *paths, path,
      {.name = std::filesystem::path(model).filename().string(),
       .id = Fingerprint(file),
       .shape = {
           .layers = spec.n_layer, .experts = spec.router.n_expert, .used = spec.router.n_used}}));
  choice.paths = std::make_shared<const PathTable>(std::move(paths->table));
  return choice;
}

Status Engine::Impl::PreparePrefetch(const PlannedMemory& planned) {
  TRY(std::unique_ptr<Predictor> predictor, MakePredictor(predictor_choice));
  const PredictorShape shape{.layers = spec.n_layer,
                             .experts = spec.router.n_expert,
                             .used = spec.router.n_used,
                             .depth = std::max(look_ahead, 1U)};
  planner.emplace(std::move(predictor), shape,
                  LimitsFor(*std::ranges::min_element(planned.slots), spec.router.n_used),
                  [this](ExpertKey key) { return residency->contains(key); });
  // Both are bound by memory bandwidth, so bytes tell.
  const double routers = look_ahead * static_cast<double>(LookAheadRouters::BytesFor(spec));
  look_ahead_share = routers / (routers + static_cast<double>(weights.dense_bytes()));
  prefetcher.emplace(*planner, *residency, spec.n_layer);
  return {};
}

Status Engine::Impl::Load() {
  // In steps, so that a progress bar moves: each thread of the team takes its part of every step.
  constexpr size_t kSteps = 16;
  for (size_t step = 0; step < kSteps; ++step) {
    Report("reserving memory", step, kSteps);
    TRY_STATUS(team->Run([&](int thread, int n_threads) {
      const auto part = step * static_cast<size_t>(n_threads) + static_cast<size_t>(thread);
      residency->Populate(part, kSteps * static_cast<size_t>(n_threads));
    }));
  }
  TRY_STATUS(LoadDense(dense, *queue, reader->block(), [this](uint64_t done, uint64_t total) {
    Report("loading", done, total);
  }));
  if (look_ahead > 0) look_ahead_routers.Fill(tensors);
  return {};
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::Open(const std::string& model_path,
                                             const EngineOptions& options, Progress progress) {
  TRY(GgufFile file, GgufFile::Open(model_path));
  auto impl = std::make_unique<Impl>(std::move(file));
  impl->progress = std::move(progress);
  TRY_STATUS(impl->Prepare(options));
  TRY_STATUS(impl->dense.set.Allocate());
  TRY_STATUS(impl->Allocate());
  TRY_STATUS(impl->Load());
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

const ModelSpec& Engine::spec() const { return impl_->spec; }
uint32_t Engine::n_ctx() const { return impl_->n_ctx; }
const MemoryPlan& Engine::memory() const { return impl_->memory; }
const PolicyChoice& Engine::policy() const { return impl_->policy; }
uint64_t Engine::model_id() const { return Fingerprint(impl_->file); }
uint32_t Engine::position() const { return impl_->position; }
const RunStats& Engine::stats() const { return impl_->stats; }
void Engine::ResetStats() { impl_->stats = {}; }
void Engine::SetProgress(Progress progress) { impl_->progress = std::move(progress); }
void Engine::SetRouteObserver(RouteObserver observer, uint32_t look_ahead) {
  CHECK(look_ahead <= max_look_ahead());
  impl_->forward->SetRouteObserver(std::move(observer), look_ahead);
}
uint32_t Engine::max_look_ahead() const { return impl_->look_ahead; }
std::span<const PredictionScore> Engine::prediction_scores() const {
  return impl_->look_ahead > 0 ? impl_->planner->scores() : std::span<const PredictionScore>();
}
void Engine::SetRequestObserver(const SlotTable::Observer& observer) {
  impl_->residency->SetObserver(observer);
}
void Engine::RequestStop() { impl_->forward->RequestStop(); }

std::string Engine::description() const {
  return std::format("{}, {}, experts by {}", impl_->device->description(),
                     impl_->reader->description(), impl_->kernels.front().kernel.front().name);
}

void Engine::Rewind(uint32_t position) {
  if (position < impl_->position) impl_->last_token.reset();
  impl_->position = std::min(position, impl_->position);
}

Status Engine::Impl::CheckTokens(std::span<const Token> tokens) const {
  if (tokens.empty()) return Fail(Errc::kInvalidRequest, "there are no tokens to evaluate");
  if (tokens.size() > n_ctx - position) {
    return Fail(Errc::kInvalidRequest,
                "{} tokens after {} do not fit a context of {}; raise --ctx (this model allows {})",
                tokens.size(), position, n_ctx, spec.n_ctx_train);
  }
  for (const Token t : tokens) {
    if (t >= 0 && static_cast<uint32_t>(t) < spec.n_vocab) continue;
    return Fail(Errc::kInvalidRequest, "token {} is outside the vocabulary (0 to {})", t,
                spec.n_vocab - 1);
  }
  return {};
}

Status Engine::Impl::Counted(PhaseStats& phase, size_t n_tokens,
                             const std::function<Status()>& work) {
  const ResidencyStats before = residency->stats();
  const double waited = experts->wait_seconds();
  const Clock::time_point start = Clock::now();
  const Status status = work();
  if (!status) {
    prefetcher->Clear();
    residency->Settle();
  }
  const ResidencyStats after = residency->stats();
  phase.seconds += SecondsSince(start);
  phase.wait_seconds += experts->wait_seconds() - waited;
  phase.expert_uses += after.requests - before.requests;
  phase.hits += after.hits - before.hits;
  phase.misses += after.late + after.misses - before.late - before.misses;
  phase.evictions += after.evictions - before.evictions;
  phase.guesses += after.guesses - before.guesses;
  phase.good_guesses += after.good_guesses - before.good_guesses;
  phase.dropped_guesses += after.dropped - before.dropped;
  phase.late += after.late - before.late;
  phase.disk_bytes += after.bytes_read - before.bytes_read;
  phase.needed_bytes += after.needed_bytes - before.needed_bytes;
  if (status) phase.tokens += n_tokens;
  return status;
}

// A decode step, and what it cost for those who decide about prefetch.
Status Engine::Impl::Decode(Token token, uint32_t at) {
  const ResidencyStats before = residency->stats();
  const double dense = forward->dense_seconds();
  const bool looks_ahead = planner->look_ahead() > 0;
  const Clock::time_point start = Clock::now();
  TRY_STATUS(forward->Decode(token, at));
  const ResidencyStats after = residency->stats();
  planner->TokenDone({.seconds = SecondsSince(start),
                      .demand_seconds = after.demand_seconds - before.demand_seconds,
                      .demand_reads = after.misses + after.late - before.misses - before.late,
                      .look_ahead_seconds =
                          looks_ahead ? (forward->dense_seconds() - dense) * look_ahead_share : 0});
  return {};
}

Status Engine::Impl::RunChunk(std::span<const Token> tokens, uint32_t first, const char* what) {
  return forward->Prefill(tokens, first,
                          [&](uint32_t layers_done) { Report(what, layers_done, spec.n_layer); });
}

Result<std::span<const float>> Engine::Append(std::span<const Token> tokens) {
  Impl& m = *impl_;
  TRY_STATUS(m.CheckTokens(tokens));
  if (m.position == 0) m.BeginSequence();
  Status status;
  if (tokens.size() == 1) {
    PhaseStats& decode = m.stats.decode;
    const PhaseStats before = decode;
    status = m.Counted(decode, 1, [&] { return m.Decode(tokens[0], m.position); });
    if (status) {
      m.stats.decode_ms.push_back((decode.seconds - before.seconds) * 1e3);
      m.stats.decode_bytes.push_back(decode.needed_bytes - before.needed_bytes);
    }
  } else {
    status = m.Counted(m.stats.prefill, tokens.size(), [&]() -> Status {
      for (size_t at = 0; at < tokens.size(); at += m.chunk) {
        const auto part = tokens.subspan(at, std::min<size_t>(m.chunk, tokens.size() - at));
        TRY_STATUS(m.RunChunk(part, m.position + static_cast<uint32_t>(at), "prefill"));
        if (at + part.size() == tokens.size()) {
          TRY_STATUS(m.graph->Head(static_cast<uint32_t>(part.size() - 1), 1));
        }
      }
      return {};
    });
  }
  m.forward->ClearStop();
  TRY_STATUS(std::move(status));
  m.position += static_cast<uint32_t>(tokens.size());
  m.last_token = tokens.back();
  return std::span<const float>(m.buffers.logits(), m.spec.n_vocab);
}

Result<std::vector<float>> Engine::AppendAll(std::span<const Token> tokens) {
  Impl& m = *impl_;
  TRY_STATUS(m.CheckTokens(tokens));
  if (m.position == 0) m.BeginSequence();
  std::vector<float> logits;
  logits.reserve(tokens.size() * m.spec.n_vocab);
  Status status = m.Counted(m.stats.prefill, tokens.size(), [&]() -> Status {
    for (size_t at = 0; at < tokens.size(); at += m.chunk) {
      const auto part = tokens.subspan(at, std::min<size_t>(m.chunk, tokens.size() - at));
      TRY_STATUS(m.RunChunk(part, m.position + static_cast<uint32_t>(at), "prefill"));
      for (uint32_t row = 0; row < part.size(); row += m.logits_rows) {
        const uint32_t n = std::min(m.logits_rows, static_cast<uint32_t>(part.size()) - row);
        TRY_STATUS(m.graph->Head(row, n));
        const float* rows = m.buffers.logits();
        logits.insert(logits.end(), rows, rows + size_t{n} * m.spec.n_vocab);
      }
    }
    return {};
  });
  m.forward->ClearStop();
  TRY_STATUS(std::move(status));
  m.position += static_cast<uint32_t>(tokens.size());
  m.last_token = tokens.back();
  return logits;
}

Status Engine::Preload() {
  Impl& m = *impl_;
  if (m.memory.n_slots < m.memory.n_experts) {
    return Fail(Errc::kInvalidRequest, "{} slots do not hold all {} experts; raise --ram",
                m.memory.n_slots, m.memory.n_experts);
  }
  for (uint16_t l = 0; l < m.spec.n_layer; ++l) {
    std::vector<ExpertKey> keys;
    for (uint16_t e = 0; e < m.spec.router.n_expert; ++e) {
      keys.push_back({.layer = LayerId{l}, .expert = {e}});
    }
    LeaseStream leases(*m.residency, std::move(keys), Use::kPrefill, Urgency::kDemand);
    leases.Advance();
    CHECK(leases.all_taken());
    m.residency->Drain();
    if (auto error = m.residency->TakeError()) return std::unexpected(*std::move(error));
    m.Report("loading experts", l + 1U, m.spec.n_layer);
  }
  return {};
}

Result<double> Engine::ProbeDiskBandwidth() {
  // A prefill may leave reads under way that nobody waited for; the probe would meet their results.
  impl_->residency->Settle();
  std::vector<Extent> regions;
  uint64_t largest = 0;
  for (const ExpertCatalog::Layer& layer : impl_->catalog.layers) {
    for (const std::vector<Extent>& slices : layer.slices) {
      regions.insert(regions.end(), slices.begin(), slices.end());
      largest = std::max(largest, slices.front().length);
    }
  }
  const ProbeOptions defaults;
  TRY(const BandwidthProbe probe,
      ProbeBandwidth(
          *impl_->reader, regions,
          {.request = std::min(defaults.request, AlignUp(largest, impl_->reader->block()))}));
  return probe.bytes_per_second;
}

Result<std::optional<double>> Engine::ProbeComputeSeconds() {
  Impl& m = *impl_;
  if (!m.last_token || m.position == 0) return std::optional<double>();
  constexpr int kRepeats = 4;
  std::optional<double> best;
  for (int i = 0; i < kRepeats; ++i) {
    PhaseStats once;
    TRY_STATUS(m.Counted(once, 1, [&] { return m.Decode(*m.last_token, m.position - 1); }));
    if (once.misses == 0) best = std::min(best.value_or(once.seconds), once.seconds);
  }
  return best;
}

}  // namespace moestro
