// SPDX-License-Identifier: MIT
// The composition root: puts every part together.
#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/format.h"
#include "base/log.h"
#include "learned/beside_model.h"
#include "learned/path_file.h"
#include "native/catalog.h"
#include "native/native_impl.h"
#include "native/plan/io_depth.h"
#include "native/plan/prompt_chunk.h"

namespace moestro {
namespace {

// Logits of several rows are computed this many bytes at a time.
constexpr uint64_t kLogitsBytes = 4 * kMiB;

uint32_t LogitsRows(const ModelSpec& spec, uint32_t sequences, uint32_t chunk) {
  const uint64_t rows = kLogitsBytes / (uint64_t{spec.n_vocab} * sizeof(float));
  // A decode step of all sequences takes one product.
  return static_cast<uint32_t>(std::clamp<uint64_t>(std::max<uint64_t>(rows, sequences), 1, chunk));
}

// Each sequence has a state, and while it is in a step one that is being written; as many are for
// kept texts and checkpoints.
uint32_t StatesFor(const MemoryShape& shape, uint32_t sequences) {
  return shape.has_states() ? 4 * sequences + 2 : 0;
}

}  // namespace

// Everything that can be known before memory is taken.
Status NativeEngine::Impl::Prepare(const EngineOptions& requested) {
  options = requested;
  TRY(policy_source,
      PolicySource::Find(options.policy, options.policy_file, model.gguf.paths().front()));
  catalog = MakeCatalog(model.weights);
  TRY(remembers, MemoryShape::Of(model.spec, options.kv_type));
  dense_reads = DenseReads::Of(model.weights, model.spec, remembers);
  TRY_STATUS(OpenLow());
  TRY_STATUS(PrepareLittle());
  n_ctx = std::min(options.ctx, model.spec.n_ctx_train);
  if (n_ctx == 0)
    return Fail(Errc::kInvalidRequest, "a context of 0 tokens holds no prompt; set --ctx");
  // A decode step of all sequences is computed at once.
  chunk = std::min(ChunkFor(options.chunk, model.spec.router), std::max(n_ctx, options.sequences));
  if (options.sequences == 0) {
    return Fail(Errc::kInvalidRequest,
                "room for 0 sequences holds no prompt; ask for at least one");
  }
  logits_rows = LogitsRows(model.spec, options.sequences, chunk);
  look_ahead = std::min(options.prefetch, model.spec.n_expert_layers() - 1);
  TRY(predictor_choice, ChoosePredictor());
  TRY(device, CpuDevice::Open(options.threads));
  TRY(kernels, FindFormKernels(catalog, options.own_kernels));
  TRY(const ReaderKind kind, ParseReaderKind(options.reader));
  TRY(reader, OpenReader({.kind = kind}, AllPaths()));
  if (options.wrap_reader) reader = options.wrap_reader(std::move(reader));
  watch = WatchOverFiles();
  return watch.Look();  // the reader has opened by name what was opened before
}

Status NativeEngine::Impl::Allocate() {
  const uint32_t common = std::min(options.common_positions, n_ctx);
  const uint64_t n_blocks =
      options.positions > 0 ? KvBlocks::BlocksFor(std::max(options.positions, n_ctx))
                            : KvBlocks::BlocksFor(common) +
                                  uint64_t{KvBlocks::BlocksFor(n_ctx - common)} * options.sequences;
  if (n_blocks * KvBlocks::kPositions > std::numeric_limits<int32_t>::max()) {
    return Fail(Errc::kInvalidRequest,
                "{} sequences of {} tokens are more than a KV cache can hold", options.sequences,
                n_ctx);
  }
  n_cells = static_cast<uint32_t>(n_blocks * KvBlocks::kPositions);
  const uint32_t n_states = StatesFor(remembers, options.sequences);
  if (!sequences) sequences.emplace(static_cast<uint32_t>(n_blocks), n_states);
  TRY(team, Team::Create(*device));
  // Before memory is planned: a driver takes some, too.
  TRY_STATUS(OpenDevices());
  TRY_STATUS(PrepareDense());
  TRY_STATUS(PrepareDevices(&Impl::AllocateSlots));
  TRY_STATUS(PrepareDevices(&Impl::TryDevice));

  const ExpertExec::Limits limits = ExpertExec::LimitsFor(kernels, model.spec.router, chunk);
  const FixedBytes fixed = FixedFor(limits);
  TRY(const PlannedMemory planned, PlanSlots(fixed));
  queue = std::make_unique<ReadQueue>(
      *reader, AllPaths(),
      ReadQueueOptions{.max_in_flight = options.io_depth, .max_speculative = options.io_depth});
  memory = planned.plan;
  slots = planned.slots;
  TRY(policy, policy_source.Choose(model.id, memory.n_slots));
  TRY_STATUS(AllocateMemory());
  TRY_STATUS(JoinDevices());
  if (options.planned) options.planned(memory);
  TRY_STATUS(PrepareLossy());
  TRY_STATUS(PreparePrefetch(planned));
  TRY(experts, ExpertExec::Create({.team = *team,
                                   .residency = *residency,
                                   .catalog = catalog,
                                   .kernels = kernels,
                                   .layers = layer_forms,
                                   .devices = device_set ? &*device_set : nullptr,
                                   .interleave = WhenToInterleave(),
                                   .stop = &stop},
                                  limits));
  forward.emplace(Forward::Parts{.spec = model.spec,
                                 .graph = *graph,
                                 .buffers = buffers,
                                 .residency = *residency,
                                 .protocol = *protocol,
                                 .planner = *planner,
                                 .experts = *experts,
                                 .layers = layer_forms,
                                 .clock = options.clock,
                                 .stop = stop,
                                 .devices = device_side.get()});
  return PrepareCheck();
}

// Devices copy experts from their slots. Where all have one, interleaving always pays in the end.
InterleaveWhen NativeEngine::Impl::WhenToInterleave() const {
  if (!gpus.empty()) return InterleaveWhen::kNever;
  return memory.n_slots < memory.n_experts ? InterleaveWhen::kMetAgain : InterleaveWhen::kThere;
}

// What is taken in memory whatever the number of slots.
FixedBytes NativeEngine::Impl::FixedFor(const ExpertExec::Limits& limits) const {
  const bool is_there = graph->is_on_device();
  const uint64_t check =
      checks() ? ExactCheck::BytesFor(model.spec, catalog, kernels, planned_block()) : 0;
  const uint64_t routers = look_ahead > 0 && !is_there ? LookAheadRouters::BytesFor(model.spec) : 0;
  const uint64_t work = check + routers + StepBuffers::BytesFor(model.spec, step_limits()) +
                        (is_there ? 0 : graph->work_bytes()) + ExpertExec::BytesFor(limits) +
                        MultiplyScratch(model.spec, chunk);
  const uint64_t staging = StagingSlots() * Residency::StagingSlotBytes(catalog, planned_block());
  // An integrated GPU's memory is the machine's own. A software one's is in use by now.
  uint64_t shared = 0;
  for (const std::unique_ptr<UsedDevice>& gpu : gpus) {
    if (gpu->device.info().kind == DeviceKind::kIntegrated) shared += gpu->plan.bytes;
  }
  return {.dense = dense.host.set.bytes(),
          .kv = (is_there ? 0 : KvCache::BytesFor(remembers, n_cells)) +
                StateStore::BytesFor(remembers, sequences->states().size()),
          .work = work + staging + shared,
          .thread = is_there ? 0 : graph->thread_bytes(),
          .threads = device->threads(),
          .n_vocab = model.spec.n_vocab,
          .devices = static_cast<uint32_t>(gpus.size()),
          .staging = dense.staging_bytes};
}

Result<PredictorChoice> NativeEngine::Impl::ChoosePredictor() const {
  TRY_STATUS(CheckPredictorName(options.predictor));
  if (look_ahead == 0) return PredictorChoice{.name = "none"};
  PredictorChoice choice{.name = options.predictor};
  if (choice.name != "paths") return choice;
  const std::string& path = model.gguf.paths().front();
  auto paths = ReadPathsFor(model.id, options.paths.empty() ? PathsBeside(path) : options.paths);
  if (!paths && paths.error().code == Errc::kIo) {
    return Fail(Errc::kIo, "{}; learn them with 'moestro profile {} --text FILE'",
                paths.error().message, path);
  }
  TRY(choice.paths, std::move(paths));
  return choice;
}

Status NativeEngine::Impl::PreparePrefetch(const PlannedMemory& planned) {
  TRY(std::unique_ptr<Predictor> predictor, MakePredictor(predictor_choice));
  const PredictorShape shape{.moe = model.id.shape, .depth = std::max(look_ahead, 1U)};
  planner.emplace(
      std::move(predictor), shape,
      PrefetchLimits{.slots = planned.slots,
                     .pool_of = [this](ExpertKey key) { return catalog.copy(key).pool; },
                     .reads_at_device = queue->options().max_speculative,
                     .is_fixed = is_repeatable()},
      [this](ExpertKey key) { return prefetched->contains(key); });
  // Both are bound by memory bandwidth, so bytes tell.
  const double routers = look_ahead * static_cast<double>(LookAheadRouters::BytesFor(model.spec));
  look_ahead_share = routers / (routers + static_cast<double>(model.weights.dense_bytes()));
  prefetched.emplace(*residency, device_tier.get());
  protocol.emplace(*planner, *prefetched, model.spec.n_expert_layers(),
                   LossyParts{.chooser = chooser ? &*chooser : nullptr,
                              .choices = choices ? &*choices : nullptr,
                              .upgrades = upgrades ? &*upgrades : nullptr});
  return {};
}

Status NativeEngine::Impl::Load() {
  // In steps, so that a progress bar moves: each thread of the team takes its part of every step.
  constexpr size_t kSteps = 16;
  for (size_t step = 0; step < kSteps; ++step) {
    Report("reserving memory", step, kSteps);
    TRY_STATUS(team->Run([&](int thread, int n_threads) {
      const auto part = step * static_cast<size_t>(n_threads) + static_cast<size_t>(thread);
      residency->Populate(part, kSteps * static_cast<size_t>(n_threads));
    }));
  }
  TRY_STATUS(LoadDenseWeights());
  if (look_ahead > 0) TRY_STATUS(look_ahead_routers.Fill(tensors));
  TRY_STATUS(CheckLowWeights());
  TRY_STATUS(FillDevice());
  TRY(kv_choices, FindChoices());
  return {};
}

EngineFacts NativeEngine::Impl::FindFacts() const {
  return {.engine = "native",
          .id = model.id,
          .arch_name = model.spec.arch_name,
          .n_vocab = model.spec.n_vocab,
          .n_ctx_train = model.spec.n_ctx_train,
          .n_ctx = n_ctx,
          .chunk = chunk,
          .has_states = remembers.has_states(),
          .position_bytes = remembers.position_bytes(),
          .state_bytes = remembers.state_bytes(),
          .memory = memory,
          .policy = policy,
          .pools = PoolsOfOwnCopies(),
          .max_look_ahead = look_ahead,
          .io_depth = options.io_depth,
          .description = Format("{}, {}, experts by {}", device->description(),
                                reader->description(), kernels.front().kernel.front().name),
          .kernels =
              Format("{}, experts by {}", device->plug_in(), kernels.front().kernel.front().name)};
}

Status NativeEngine::Impl::Start(const EngineOptions& requested) {
  TRY_STATUS(Prepare(requested));
  TRY_STATUS(Allocate());
  TRY_STATUS(Load());
  facts = FindFacts();
  return {};
}

NativeEngine::NativeEngine(std::unique_ptr<Lasting> lasting, std::unique_ptr<Impl> impl)
    : lasting_(std::move(lasting)), impl_(std::move(impl)) {}
NativeEngine::~NativeEngine() = default;

Result<std::unique_ptr<NativeEngine>> NativeEngine::Open(const std::string& model_path,
                                                         const EngineOptions& options,
                                                         Progress progress) {
  TRY(ModelFile model, ModelFile::Open(model_path));
  return Open(std::move(model), options, std::move(progress));
}

Result<std::unique_ptr<NativeEngine>> NativeEngine::Open(ModelFile model,
                                                         const EngineOptions& options,
                                                         Progress progress) {
  std::unique_ptr<Lasting> lasting(
      new Lasting{.model = std::move(model), .stop = StopSignal(options.at_look)});
  lasting->progress = std::move(progress);
  auto impl = std::make_unique<Impl>(*lasting);
  Status started = impl->Start(options);
  if (!started && started.error().code == Errc::kDevice && impl->is_auto() && !impl->gpus.empty()) {
    LogWarning("{}; the CPU computes everything", started.error().message);
    EngineOptions again = options;
    again.device = {.name = "cpu"};
    impl.reset();  // before its successor takes as much
    lasting->sequences.reset();
    impl = std::make_unique<Impl>(*lasting);
    started = impl->Start(again);
  }
  TRY_STATUS(std::move(started));
  return std::unique_ptr<NativeEngine>(new NativeEngine(std::move(lasting), std::move(impl)));
}

Result<MemoryPlan> NativeEngine::Plan(const std::string& model_path, const EngineOptions& options) {
  TRY(ModelFile model, ModelFile::Open(model_path));
  Lasting lasting{.model = std::move(model)};
  Impl impl(lasting);
  EngineOptions unmeasured = options;
  if (options.io_depth == 0) unmeasured.io_depth = kIoDepths.front();
  TRY_STATUS(impl.Prepare(unmeasured));
  TRY_STATUS(impl.Allocate());
  return impl.memory;
}

const EngineFacts& NativeEngine::facts() const { return impl_->facts; }
const std::optional<Error>& NativeEngine::closed() const { return lasting_->closed; }
const ModelSpec& NativeEngine::spec() const { return impl_->model.spec; }
RunStats& NativeEngine::stats() { return lasting_->stats; }
Watchers& NativeEngine::watchers() { return impl_->watchers(); }
EngineLearned NativeEngine::learned() const {
  EngineLearned learned{.lane_ratios = impl_->CurrentLaneRatios()};
  if (impl_->look_ahead > 0 && impl_->planner) learned.predictions = impl_->planner->scores();
  if (impl_->device_tier) {
    learned.device = impl_->device_tier->stats();
    learned.device.layers_there = impl_->forward->layers_there();
  }
  return learned;
}
ExpertPlace NativeEngine::place_of(ExpertKey key) const {
  const ExpertCatalog& catalog = impl_->catalog;
  const uint32_t pool = catalog.copy(key).pool;
  return {.pool = pool, .bytes = catalog.pools[pool].expert_bytes()};
}
void NativeEngine::SetProgress(Progress progress) { impl_->progress = std::move(progress); }
void NativeEngine::SetRoutingOverride(RoutingOverride routing) {
  watchers().routing = std::move(routing);
}
void NativeEngine::SetCopyOverride(CopyOverride copies) { watchers().copies = std::move(copies); }
void NativeEngine::SetRequestObserver(const SlotTable::Observer& observer) {
  impl_->request_observer = observer;
  if (impl_->residency) impl_->residency->SetObserver(observer);
}
void NativeEngine::SetCheckObserver(CheckObserver observer) {
  impl_->check_observer = std::move(observer);
}
void NativeEngine::SetExpertObserver(ExpertObserver observer) {
  watchers().experts = std::move(observer);
}
std::span<const std::vector<ExpertId>> NativeEngine::widened() const {
  if (!impl_->forward) return {};
  return impl_->forward->widened();
}
void NativeEngine::FinishReads() {
  if (impl_->residency) impl_->residency->Drain();
}
Engine::KvRoom NativeEngine::kv_room() const {
  const KvBlocks& blocks = impl_->sequences->blocks();
  return {.free = blocks.free_blocks() * KvBlocks::kPositions,
          .all = blocks.blocks() * KvBlocks::kPositions,
          .states = impl_->sequences->states().free()};
}

Sequence NativeEngine::NewSequence() { return {*impl_->sequences, impl_->sequences->New()}; }
void NativeEngine::RequestStop() { lasting_->stop.Request(); }

Result<NativeEngine*> AsNative(Engine& engine, std::string_view what) {
  if (auto* const native = dynamic_cast<NativeEngine*>(&engine)) return native;
  return Fail(Errc::kUnsupported,
              "{} needs the native engine, and {} runs on the {} one (libllama's forward pass)",
              what, engine.facts().arch_name, engine.facts().engine);
}

}  // namespace moestro
