// SPDX-License-Identifier: MIT
#include "hosted/hosted_engine.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <utility>

#include "base/file_watch.h"
#include "base/log.h"
#include "base/stop_signal.h"
#include "device/cpu_device.h"
#include "device/memory_probe.h"
#include "device/team.h"
#include "engine/check_batch.h"
#include "engine/option_table.h"
#include "engine/plan/io_depth.h"
#include "engine/plan/memory_plan.h"
#include "hosted/chunk_plan.h"
#include "hosted/early_routers.h"
#include "hosted/graph_server.h"
#include "hosted/hosted_file.h"
#include "hosted/hosted_model.h"
#include "hosted/hosted_options.h"
#include "hosted/hosted_origin.h"
#include "hosted/hosted_plan.h"
#include "hosted/hosted_sequences.h"
#include "hosted/kernel_products.h"
#include "hosted/llama_rows.h"
#include "hosted/slot_products.h"
#include "learned/policy_source.h"
#include "memory/kv_blocks.h"
#include "model/fingerprint.h"
#include "residency/engine_slots.h"
#include "residency/phase_counter.h"
#include "residency/prefetched_experts.h"
#include "store/probe.h"

namespace moestro {
// Members in order of construction: later ones borrow from earlier ones.
struct HostedEngine::Parts {
  GgufFile file;
  EngineOptions options;
  StopSignal stop;
  std::optional<Error> closed = {};
  Progress progress = {};
  FileWatch watch = {};
  std::unique_ptr<HostedModel> model = {};
  ExpertCatalog catalog = {};
  std::unique_ptr<BlockReader> reader = {};
  std::unique_ptr<ReadQueue> queue = {};
  std::optional<CpuDevice> cpu = {};
  std::optional<Team> team = {};
  std::unique_ptr<Residency> residency = {};
  std::optional<SlotProducts> products = {};
  std::optional<KernelProducts> kernels = {};
  std::optional<PrefetchPlanner> planner = {};
  bool predicts = false;
  std::optional<PrefetchedExperts> prefetched = {};
  std::optional<EarlyRouters> early = {};
  std::optional<LayerProtocol> protocol = {};
  Watchers watchers = {};
  std::optional<GraphServer> server = {};
  std::optional<HostedSequences> sequences = {};
  EngineFacts facts = {};
  std::vector<uint64_t> slots = {};  // by pool
  uint32_t outputs = 0;              // most rows with logits in a chunk
  std::optional<HostedOrigin> origin = {};
  RunStats stats = {};
  std::optional<PhaseCounter> counter = {};

  Parts(GgufFile opened, const EngineOptions& wanted)
      : file(std::move(opened)), options(wanted), stop(wanted.at_look) {}

  Status OpenModel();
  Status PlanSlots();
  Status FindFacts(const MemoryPlan& memory, uint32_t n_ctx);
  Status Load();
  Status Decide();
  uint64_t EarlyRouterBytes() const;
  Status LookAtFiles();
  void BeginSequence();
  void Report(const char* what, uint64_t done, uint64_t total) const {
    if (progress) progress(what, done, total);
  }
  size_t ChunkFrom(const Batch& batch, size_t first) const;
  Status Compute(const Batch& batch, const LogitsSink& sink, const Interlude& interlude);
  Status StepAside(const Interlude& interlude);
  Status ComputeChunk(std::span<const BatchRow> part, size_t first, const LogitsSink& sink);
  Status GiveLogits(std::span<const BatchRow> part, size_t first, const LogitsSink& sink) const;
  Status RunStep(const Batch& batch, PhaseStats& phase, const LogitsSink& sink,
                 const Interlude& interlude);
};

// Makes libllama's model and context, and builds the learned graph.
Status HostedEngine::Parts::OpenModel() {
  TRY_STATUS(CheckOptions(options));
  TRY_STATUS(CheckHosted(options));
  TRY(facts.n_ctx, HostedContext(file, options));
  TRY(const uint32_t n_blocks, BlocksOf({.n_ctx = facts.n_ctx,
                                         .sequences = options.sequences,
                                         .common = options.common_positions,
                                         .positions = options.positions}));
  std::vector<WatchedFile> watched;
  for (size_t i = 0; i < file.paths().size(); ++i) {
    watched.push_back({.path = file.paths()[i], .stamp = file.stamps()[i]});
  }
  watch = FileWatch(std::move(watched), options.clock);
  TRY(const std::optional<uint64_t> n_vocab, file.FindArrayLength("tokenizer.ggml.tokens"));
  const ContextSizes sizes =
      SizesOf(facts.n_ctx, options.chunk, options.sequences, n_vocab.value_or(0));
  outputs = sizes.outputs;
  TRY(const std::optional<std::string> arch, file.FindString("general.architecture"));
  facts.arch_name = arch.value_or("");
  HostedModel::Shape shape{.n_cells = n_blocks * KvBlocks::kPositions,
                           .n_places = sizes.places,
                           .n_places_of_states = sizes.places_of_states,
                           .chunk = sizes.chunk,
                           .outputs = sizes.outputs,
                           .threads = ResolveThreads(options.threads),
                           .kv_type = options.kv_type};
  TRY(model, HostedModel::Open(file, shape));
  TRY_STATUS(watch.Look());
  facts.chunk = sizes.chunk;
  catalog = CatalogOf(model->graph().groups);
  facts.max_look_ahead = std::min(options.prefetch, EarlyRouters::MostAhead(model->graph()));
  origin.emplace(file, *model);
  sequences.emplace(model->memory(), model->has_states(), n_blocks, model->n_places());
  return {};
}

Status HostedEngine::Parts::PlanSlots() {
  TRY(const ReaderKind kind, ParseReaderKind(options.reader));
  TRY(reader, OpenReader({.kind = kind}, file.paths()));
  if (options.wrap_reader) reader = options.wrap_reader(std::move(reader));
  if (options.io_depth == 0) options.io_depth = kIoDepths.front();
  TRY(ChunkPlan planned,
      PlanChunk(options, facts.chunk, [&](const EngineOptions& asked, uint32_t chunk) {
        return PlanMemory(asked, catalog, std::max(reader->block(), kPlannedBlock),
                          SlotsForRows(model->graph(), catalog, chunk),
                          {.dense = model->dense_bytes(),
                           .kv = model->memory_bytes(),
                           .work = model->work_bytes() + EarlyRouterBytes(),
                           .threads = ResolveThreads(options.threads),
                           .n_vocab = model->n_vocab(),
                           .vocabularies = 2,  // the model's own, and that of prompts
                           .resident = model->resident_before()});
      }));
  facts.chunk = planned.chunk;
  slots = std::move(planned.memory.slots);
  facts.memory = std::move(planned.memory.plan);
  return {};
}

Status HostedEngine::Parts::FindFacts(const MemoryPlan& memory, uint32_t n_ctx) {
  facts.engine = "hosted";
  facts.id = {.name = std::filesystem::path(file.paths().front()).filename().string(),
              .fingerprint = Fingerprint(file),
              .shape = ShapeOf(model->graph().groups)};
  facts.n_vocab = model->n_vocab();
  facts.n_ctx_train = model->n_ctx_train();
  facts.n_ctx = n_ctx;
  facts.has_states = facts.divides_at_kept = model->has_states();
  facts.position_bytes = memory.kv / std::max<uint64_t>(model->n_cells(), 1);
  for (size_t p = 0; p < catalog.pools.size(); ++p) {
    facts.pools.pools.push_back({.matrix_bytes = catalog.pools[p].slice_bytes, .slots = slots[p]});
  }
  const MoeShape& shape = facts.id.shape;
  for (size_t l = 0; catalog.pools.size() > 1 && l < catalog.layers.size(); ++l) {
    const auto pool = static_cast<uint16_t>(catalog.layers[l].pools.front());
    facts.pools.pool_of.insert(facts.pools.pool_of.end(), shape.n_expert, pool);
  }
  facts.io_depth = options.io_depth;
  facts.kernels = Format("libllama {}, ggml {}", llama_version(), ggml_version());
  facts.description = Format("hosted by {}, {} threads, {}", facts.kernels,
                             ResolveThreads(options.threads), reader->description());
  if (shape.n_layer == 0) {
    LogWarning("{} has no experts: all of it is resident", facts.id.name);
    return {};
  }
  TRY(const PolicySource source,
      PolicySource::Find(options.policy, options.policy_file, file.paths().front()));
  TRY(facts.policy, source.Choose(facts.id, memory.n_slots));
  return {};
}

Status HostedEngine::Parts::Load() {
  TRY(cpu, CpuDevice::Open(options.threads));
  TRY(team, Team::Create(*cpu));
  queue = std::make_unique<ReadQueue>(
      *reader, file.paths(),
      ReadQueueOptions{.max_in_flight = options.io_depth, .max_speculative = options.io_depth});
  Report("loading", 0, model->dense_bytes());
  TRY_STATUS(model->LoadDense(*queue));
  Report("loading", model->dense_bytes(), model->dense_bytes());
  TRY(residency, Residency::Create(catalog, slots, facts.policy, *queue, options.clock));
  products.emplace(model->graph(), catalog, *residency);
  if (options.repack) kernels.emplace(model->graph(), cpu->threads());
  Report("reserving memory", 0, 1);
  TRY_STATUS(team->Run([this](int thread, int n_threads) {
    const auto part = static_cast<size_t>(thread);
    const auto parts = static_cast<size_t>(n_threads);
    residency->Populate(part, parts);
    if (kernels) kernels->LayOutDense(part, parts);
  }));
  residency->RegisterMemory();
  if (facts.max_look_ahead > 0) {
    TRY(early, EarlyRouters::Create(model->graph(), *cpu));
  }
  return Decide();
}

uint64_t HostedEngine::Parts::EarlyRouterBytes() const {
  return facts.max_look_ahead > 0 ? EarlyRouters::BytesFor(model->graph()) : 0;
}

// The decisions of every layer, as the native engine and the simulator make them.
Status HostedEngine::Parts::Decide() {
  TRY(const PredictorChoice choice, HostedPredictor(options, facts, file.paths().front()));
  predicts = choice.name != "none";
  TRY(std::unique_ptr<Predictor> predictor, MakePredictor(choice));
  planner.emplace(
      std::move(predictor),
      PredictorShape{.moe = facts.id.shape, .depth = predicts ? std::max(options.prefetch, 1U) : 1},
      PrefetchLimits{.slots = slots,
                     .pool_of = [this](ExpertKey key) { return catalog.copy(key).pool; },
                     .reads_at_device = queue->options().max_speculative},
      [this](ExpertKey key) { return prefetched->contains(key); });
  prefetched.emplace(*residency, nullptr);
  protocol.emplace(*planner, *prefetched, facts.id.shape.n_layer);
  server.emplace(GraphServer::Parts{.graph = model->graph(),
                                    .residency = *residency,
                                    .products = *products,
                                    .kernels = kernels ? &*kernels : nullptr,
                                    .early = early ? &*early : nullptr,
                                    .protocol = *protocol,
                                    .watchers = watchers,
                                    .stop = stop,
                                    .clock = options.clock,
                                    .layer_begins = [this] { return LookAtFiles(); }},
                 model->hooks());
  counter.emplace(
      *residency, *protocol, [this] { return server->wait_seconds(); },
      [] { return std::pair(0.0, uint64_t{0}); });
  return {};
}

// Once a second. A change ends this step and all later ones.
Status HostedEngine::Parts::LookAtFiles() {
  Status looked = watch.LookNowAndThen();
  if (!looked) closed = looked.error();
  return looked;
}

void HostedEngine::Parts::BeginSequence() {
  residency->BeginSequence();
  protocol->BeginSequence();
}

// The number of rows from `first` on that go through the layers together. A chunk ends before more
// rows with logits than `outputs`, and before rows that libllama would put into another graph,
// since the server is given the rows of one graph.
size_t HostedEngine::Parts::ChunkFrom(const Batch& batch, size_t first) const {
  size_t n = 0;
  size_t wanted = 0;
  for (; n < facts.chunk && first + n < batch.size(); ++n) {
    // An observer of routing gets every row in the last layers, too.
    if (batch.rows[first + n].wants_logits || watchers.route) ++wanted;
    if (wanted > outputs) break;
    if (facts.has_states && batch.rows[first + n].is_kept) {  // later states go elsewhere
      ++n;
      break;
    }
  }
  return facts.has_states ? EvenRows(std::span(batch.rows).subspan(first, n)) : n;
}

Status HostedEngine::Parts::Compute(const Batch& batch, const LogitsSink& sink,
                                    const Interlude& interlude) {
  const bool is_prompt = !batch.has_decode_rows();
  const ExpertCounts before = residency->stats();
  const double looked = server->look_ahead_seconds();
  const double start = options.clock();
  protocol->BeginStep({});
  for (size_t first = 0; first < batch.size();) {
    if (first > 0 && is_prompt && interlude.is_due && interlude.is_due()) {
      TRY_STATUS(StepAside(interlude));
    }
    if (is_prompt) Report("prefill", first, batch.size());
    const size_t n = ChunkFrom(batch, first);
    TRY_STATUS(ComputeChunk(std::span(batch.rows).subspan(first, n), first, sink));
    first += n;
  }
  if (is_prompt) return {};
  const ExpertCounts did = residency->stats() - before;
  planner->StepDone({.seconds = options.clock() - start,
                     .demand_seconds = did.demand_seconds,
                     .demand_reads = did.misses,
                     .look_ahead_seconds = server->look_ahead_seconds() - looked});
  return {};
}

// Runs other texts' step, which the prompt's counter leaves out; a stop waits for the prompt.
Status HostedEngine::Parts::StepAside(const Interlude& interlude) {
  const Status ran = counter->Aside([&] {
    const StopSignal::Hold hold(stop);
    return interlude.run();
  });
  protocol->BeginStep({});
  return ran;
}

Status HostedEngine::Parts::ComputeChunk(std::span<const BatchRow> part, size_t first,
                                         const LogitsSink& sink) {
  sequences->PassOn(part);
  LlamaRows batch(part.size());
  std::vector<RowKind> kinds;
  std::vector<RowKind> kinds_of_outputs;
  const bool has_logits = std::ranges::contains(part, true, &BatchRow::wants_logits);
  for (size_t i = 0; i < part.size(); ++i) {
    const BatchRow& row = part[i];
    // libllama computes the last layers for rows with logits alone, and for one at least here.
    const bool is_output =
        row.wants_logits || watchers.route || (!has_logits && i + 1 == part.size());
    batch.Add(row.token, row.position, sequences->WritesTo(row.sequence, row.position), is_output);
    kinds.push_back(row.kind);
    if (is_output) kinds_of_outputs.push_back(row.kind);
  }
  // Keys and values are libllama's, and are not counted.
  counter->AddDense(model->whole_bytes());
  const bool decodes = std::ranges::contains(kinds, RowKind::kDecode);
  server->Begin({.kinds = kinds,
                 .kinds_of_outputs = kinds_of_outputs,
                 .look_ahead = std::max(decodes ? planner->look_ahead() : 0, watchers.look_ahead)});
  const Result<int32_t> code = batch.Decode(model->context());
  const Status served = server->End();
  if (!code) return std::unexpected(code.error());
  TRY_STATUS(served);
  if (*code == 1) return Fail(Errc::kInvalidRequest, "libllama finds no room in the KV cache");
  if (*code != 0) {
    return Fail(Errc::kUnsupported, "libllama cannot compute these rows (code {})", *code);
  }
  return GiveLogits(part, first, sink);
}

Status HostedEngine::Parts::GiveLogits(std::span<const BatchRow> part, size_t first,
                                       const LogitsSink& sink) const {
  for (size_t i = 0; i < part.size(); ++i) {
    if (!part[i].wants_logits) continue;
    const float* const logits = llama_get_logits_ith(model->context(), static_cast<int32_t>(i));
    if (logits == nullptr) return Fail(Errc::kUnsupported, "libllama gives no logits");
    const std::span<const float> row(logits, facts.n_vocab);
    if (std::ranges::any_of(row, [](float value) { return std::isnan(value); })) {
      return Fail(Errc::kInvalidFile,
                  "position {}: the model computed NaN; the weights are damaged, or their values "
                  "too large for this type of keys and values: fetch the model again",
                  part[i].position);
    }
    if (sink) sink(first + i, row);
  }
  return {};
}

Status HostedEngine::Parts::RunStep(const Batch& batch, PhaseStats& phase, const LogitsSink& sink,
                                    const Interlude& interlude) {
  Status status = counter->Count(phase, [&] {
    Status computed = Compute(batch, sink, interlude);
    if (!computed) {
      protocol->Clear();
      residency->Abandon();
      if (computed.error().code == Errc::kInterrupted) stop.Take();
    }
    return computed;
  });
  if (status) {
    sequences->Commit(batch);
  } else {
    sequences->Undo(batch);
  }
  return status;
}

HostedEngine::HostedEngine(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
HostedEngine::~HostedEngine() = default;

Result<std::unique_ptr<HostedEngine>> HostedEngine::Open(GgufFile file,
                                                         const EngineOptions& options,
                                                         Progress progress) {
  auto parts = std::make_unique<Parts>(std::move(file), options);
  parts->progress = std::move(progress);
  TRY_STATUS(parts->OpenModel());
  TRY_STATUS(parts->PlanSlots());
  TRY_STATUS(parts->FindFacts(parts->facts.memory, parts->facts.n_ctx));
  if (options.planned) options.planned(parts->facts.memory);
  TRY_STATUS(parts->Load());
  return std::unique_ptr<HostedEngine>(new HostedEngine(std::move(parts)));
}

Result<MemoryPlan> HostedEngine::Plan(GgufFile file, const EngineOptions& options) {
  Parts parts(std::move(file), options);
  TRY_STATUS(parts.OpenModel());
  TRY_STATUS(parts.PlanSlots());
  return parts.facts.memory;
}

Status HostedEngine::Step(const Batch& batch, const LogitsSink& sink, const Interlude& interlude) {
  Parts& m = *parts_;
  if (m.closed) return std::unexpected(*m.closed);
  if (batch.little.is_on()) {
    return Fail(Errc::kInvalidRequest, "the hosted engine takes no step with fewer experts");
  }
  const auto length_of = [&](SequenceId id) -> std::optional<uint32_t> {
    const Timeline* timeline = m.sequences->Find(id);
    if (timeline == nullptr) return std::nullopt;
    return static_cast<uint32_t>(timeline->tokens.size());
  };
  TRY_STATUS(CheckRows(
      batch,
      {.n_ctx = m.facts.n_ctx, .n_ctx_train = m.facts.n_ctx_train, .n_vocab = m.facts.n_vocab},
      length_of));
  if (!m.sequences->any_lives()) m.BeginSequence();
  TRY_STATUS(m.sequences->Begin(batch));
  PhaseStats& phase = batch.has_decode_rows() ? m.stats.decode : m.stats.prefill;
  const PhaseStats before = phase;
  TRY_STATUS(m.RunStep(batch, phase, sink, interlude));
  phase.tokens += batch.size();
  if (batch.has_decode_rows()) {
    m.stats.decode_ms.Add((phase.seconds - before.seconds) * 1e3);
    m.stats.decode_bytes.Add(static_cast<double>(phase.needed_bytes - before.needed_bytes));
  }
  return {};
}

const EngineFacts& HostedEngine::facts() const { return parts_->facts; }
const std::optional<Error>& HostedEngine::closed() const { return parts_->closed; }
RunStats& HostedEngine::stats() { return parts_->stats; }
Watchers& HostedEngine::watchers() { return parts_->watchers; }
void HostedEngine::RequestStop() { parts_->stop.Request(); }
void HostedEngine::SetProgress(Progress progress) { parts_->progress = std::move(progress); }
EngineLearned HostedEngine::learned() const {
  EngineLearned learned;
  if (parts_->predicts) learned.predictions = parts_->planner->scores();
  return learned;
}
std::span<const std::vector<ExpertId>> HostedEngine::widened() const { return {}; }
Sequence HostedEngine::NewSequence() { return {*parts_->sequences, parts_->sequences->New()}; }
Engine::KvRoom HostedEngine::kv_room() const { return parts_->sequences->room(); }
void HostedEngine::SetRequestObserver(const SlotTable::Observer& observer) {
  parts_->residency->SetObserver(observer);
}

void HostedEngine::FinishReads() { parts_->residency->Drain(); }

std::vector<SlotContents> HostedEngine::slot_contents() const {
  return ContentsOf(*parts_->residency, parts_->catalog, parts_->slots);
}

ExpertPlace HostedEngine::place_of(ExpertKey key) const { return PlaceOf(parts_->catalog, key); }

ResidentModel HostedEngine::MakeResidentModel() const {
  return ResidentModelOf(parts_->catalog, parts_->slots, parts_->facts.policy,
                         parts_->facts.id.shape);
}

Status HostedEngine::Preload() {
  Parts& m = *parts_;
  return ReadAllExperts(
      *m.residency, m.catalog, m.facts.memory,
      [&m](const char* what, uint64_t done, uint64_t total) { m.Report(what, done, total); });
}

Result<KvOrigin> HostedEngine::kv_origin() {
  TRY(HostedHome home, parts_->origin->Home(parts_->facts, parts_->options.kv_type));
  return std::move(home.origin);
}

Status HostedEngine::SaveSequence(const Sequence& sequence, const std::string& notes,
                                  const OutputPath& path) {
  Parts& m = *parts_;
  TRY(const HostedHome home, m.origin->Home(m.facts, m.options.kv_type));
  std::vector<uint8_t> state;
  if (sequence.position() > 0) {
    const std::optional<llama_seq_id> from = m.sequences->HeldIn(sequence.id());
    if (!from) {
      return Fail(Errc::kInvalidRequest,
                  "the sequence's keys and values had no place; evaluate it again");
    }
    state.resize(llama_state_seq_get_size(m.model->context(), *from));
    const size_t got =
        llama_state_seq_get_data(m.model->context(), state.data(), state.size(), *from);
    if (got != state.size()) return Fail(Errc::kUnsupported, "libllama gives no state to save");
  }
  return WriteHosted(path, home, sequence.tokens(), notes, state);
}

Result<SavedTokens> HostedEngine::PeekSequence(const std::string& path) {
  TRY(const HostedHome home, parts_->origin->Home(parts_->facts, parts_->options.kv_type));
  return PeekHosted(path, home);
}

Result<SavedSequence> HostedEngine::RestoreSequence(const std::string& path) {
  Parts& m = *parts_;
  TRY(const HostedHome home, m.origin->Home(m.facts, m.options.kv_type));
  TRY(HostedText read, ReadHosted(path, home));
  SavedSequence saved{.sequence = NewSequence(), .notes = std::move(read.text.notes)};
  if (read.text.tokens.empty()) return saved;
  const SequenceId id = saved.sequence.id();
  TRY_STATUS(m.sequences->Begin(id, read.text.tokens));
  const llama_seq_id to = m.sequences->WritesTo(id, 0);
  const size_t taken =
      llama_state_seq_set_data(m.model->context(), read.state.data(), read.state.size(), to);
  const auto last = static_cast<llama_pos>(read.text.tokens.size() - 1);
  if (taken == 0 || llama_memory_seq_pos_max(m.model->memory(), to) != last) {
    m.sequences->Undo(id, 0);
    return Fail(Errc::kInvalidFile, "{}: libllama does not take its state; start a new one", path);
  }
  m.sequences->Commit(id);
  return saved;
}

Result<double> HostedEngine::ProbeDiskBandwidth() {
  Parts& m = *parts_;
  return ProbeExpertReads(*m.residency, m.catalog, *m.reader, m.queue->options(),
                          ProbeOptions().total);
}

Result<double> HostedEngine::ProbeMemoryBandwidth() {
  parts_->residency->Settle();  // nothing may be read into the slots meanwhile
  return ProbeReadBandwidth(*parts_->team, parts_->residency->memory());
}

Result<std::optional<double>> HostedEngine::ProbeComputeSeconds(
    std::span<Sequence* const> sequences) {
  constexpr int kRepeats = 4;
  Batch again;
  for (Sequence* const sequence : sequences) {
    const uint32_t position = sequence->position();
    if (position == 0 || sequence->Reach(position - 1) != position - 1) {
      return std::optional<double>();
    }
    again.rows.push_back(
        {.sequence = sequence->id(), .position = position - 1, .token = sequence->tokens().back()});
  }
  if (again.rows.empty()) return std::optional<double>();
  std::optional<double> best;
  for (int i = 0; i < kRepeats; ++i) {
    for (Sequence* const sequence : sequences) sequence->CutBack(sequence->position() - 1);
    PhaseStats once;
    TRY_STATUS(parts_->sequences->Begin(again));
    TRY_STATUS(parts_->RunStep(again, once, {}, {}));
    if (once.misses == 0) best = std::min(best.value_or(once.seconds), once.seconds);
  }
  return best;
}

}  // namespace moestro
