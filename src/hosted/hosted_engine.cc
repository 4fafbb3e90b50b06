// SPDX-License-Identifier: MIT
#include "hosted/hosted_engine.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <utility>

#include "base/input_file.h"
#include "base/terminal.h"
#include "compute/cpu_device.h"
#include "compute/fast_cores.h"
#include "compute/team.h"
#include "engine/option_table.h"
#include "engine/plan/io_depth.h"
#include "engine/plan/memory_plan.h"
#include "hosted/graph_server.h"
#include "hosted/hosted_embeddings.h"
#include "hosted/hosted_files.h"
#include "hosted/hosted_model.h"
#include "hosted/hosted_plan.h"
#include "hosted/hosted_sequences.h"
#include "hosted/kernel_products.h"
#include "hosted/llama_rows.h"
#include "hosted/slot_products.h"
#include "hosted/table_reads.h"
#include "kit/expert_slots.h"
#include "kit/slot_engine.h"
#include "learned/tunings.h"
#include "memory/memory_use.h"
#include "model/embedding_form.h"
#include "model/gguf_file.h"

namespace moestro {
// Members in order of construction: later ones borrow from earlier ones.
struct HostedEngine::Running {
  GgufFile file;
  EngineOptions options;
  EngineState state;
  const bool embeds;
  FileWatch watch = {};
  std::unique_ptr<HostedModel> model = {};
  ExpertCatalog catalog = {};
  std::unique_ptr<BlockReader> reader = {};
  std::unique_ptr<ExpertSlots> slots = {};
  std::optional<CpuDevice> cpu = {};
  std::optional<Team> team = {};
  std::unique_ptr<FastCores> fast = {};  // null: threads run on any core
  std::optional<SlotProducts> products = {};
  std::optional<KernelProducts> kernels = {};
  std::optional<EarlyRouters> early = {};
  std::optional<TableReads> tables = {};
  std::unique_ptr<LayerDecisions> decisions = {};
  std::optional<StepFrame> frame = {};
  std::optional<GraphServer> server = {};
  std::optional<HostedSequences> sequences = {};
  std::optional<HostedEmbeddings> embeddings = {};  // nullopt: the engine writes texts
  EngineFacts facts = {};
  uint32_t outputs = 0;  // most rows with logits in a chunk
  std::optional<HostedOrigin> origin = {};
  std::optional<EngineKit> kit = {};

  Running(GgufFile opened, const EngineOptions& wanted, HostedUse use, Progress progress = {})
      : file(std::move(opened)),
        options(wanted),
        state(wanted.at_look, std::move(progress)),
        embeds(use == HostedUse::kEmbeddings) {}

  Status OpenModel();
  Result<ContextSizes> FindSizes();
  Result<uint32_t> FindBlocks(const ContextSizes& sizes) const;
  Result<PlannedMemory> PlanSlots();
  Status MakeSlots(PlannedMemory planned);
  void FindFacts();
  Status Load();
  Status Decide();
  uint64_t EarlyRouterBytes() const;
  size_t ChunkFrom(const Batch& batch, size_t first) const;
  Status Compute(const Batch& batch, const LogitsSink& sink);
  Result<size_t> ComputeFrom(const Batch& batch, size_t first, const LogitsSink& sink);
  Status ComputeChunk(std::span<const BatchRow> part, size_t first, const LogitsSink& sink);
  Status GiveLogits(std::span<const BatchRow> part, size_t first, const LogitsSink& sink) const;
};

// Sizes of the context. Where texts cannot be split, the chunk that holds them is kept as a user's
// choice would be.
Result<ContextSizes> HostedEngine::Running::FindSizes() {
  TRY(const std::optional<uint64_t> n_vocab, file.FindArrayLength("tokenizer.ggml.tokens"));
  if (!embeds) {
    return SizesOf(facts.n_ctx, options.chunk, options.sequences, n_vocab.value_or(0));
  }
  TRY(const EmbeddingForm form, ReadEmbeddingForm(file));
  if (!form.gives_embeddings()) {
    return Fail(Errc::kUnsupported, "{}: {}", file.paths().front(), NoEmbeddingsText(form.pooling));
  }
  const ContextSizes sizes =
      SizesForEmbeddings(facts.n_ctx, options.chunk, form, n_vocab.value_or(0));
  if (!form.may_split()) options.chunk = sizes.chunk;
  return sizes;
}

// Blocks of cells. Texts of one chunk are computed at a time for embeddings.
Result<uint32_t> HostedEngine::Running::FindBlocks(const ContextSizes& sizes) const {
  if (embeds) return BlocksOf({.n_ctx = std::max(facts.n_ctx, sizes.chunk)});
  return BlocksOf({.n_ctx = facts.n_ctx,
                   .sequences = options.sequences,
                   .common = options.common_positions,
                   .positions = options.positions});
}

// Makes libllama's model and context, and builds the learned graph.
Status HostedEngine::Running::OpenModel() {
  TRY_STATUS(CheckOptions(options));
  TRY_STATUS(CheckHosted(options));
  TRY(facts.n_ctx, HostedContext(file, options));
  TRY(const ContextSizes sizes, FindSizes());
  TRY(const uint32_t n_blocks, FindBlocks(sizes));
  std::vector<WatchedFile> watched;
  file.AddTo(watched);
  watch = FileWatch(std::move(watched), options.clock);
  outputs = sizes.outputs;
  TRY(const std::optional<std::string> arch, file.FindString("general.architecture"));
  facts.arch_name = arch.value_or("");
  facts.threads = ResolveThreads(options.threads);
  // Cells of embeddings are floats: F16 alone moves a vector by more than 1e-5.
  HostedModel::Shape shape{.n_cells = n_blocks * KvBlocks::kPositions,
                           .n_places = sizes.places,
                           .n_places_of_states = sizes.places_of_states,
                           .chunk = sizes.chunk,
                           .outputs = sizes.outputs,
                           .threads = ResolveThreads(options.threads),
                           .kv_type = embeds ? KvType::kF32 : options.kv_type,
                           .embeds = embeds};
  TRY(model, HostedModel::Open(file, shape));
  TRY_STATUS(watch.Look());
  if (model->memory() == nullptr && sizes.chunk < facts.n_ctx) {
    return Fail(Errc::kUnsupported,
                "{}: its file does not say that tokens see those after them, and libllama lets "
                "them; convert the model again",
                file.paths().front());
  }
  facts.chunk = sizes.chunk;
  catalog = CatalogOf(model->graph().groups);
  facts.max_look_ahead = std::min(options.prefetch, EarlyRouters::MostAhead(model->graph()));
  origin.emplace(file, *model);
  sequences.emplace(model->context(),
                    MemoryTraits{.n_places = model->n_places(),
                                 .has_states = model->has_states(),
                                 .copies_late = facts.arch_name == "deepseek4",
                                 .n_window = model->n_window()},
                    n_blocks);
  return {};
}

Result<PlannedMemory> HostedEngine::Running::PlanSlots() {
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
  return std::move(planned.memory);
}

Status HostedEngine::Running::MakeSlots(PlannedMemory planned) {
  facts.id = {.name = std::filesystem::path(file.paths().front()).filename().string(),
              .fingerprint = Fingerprint(file),
              .shape = ShapeOf(model->graph().groups)};
  PolicySource policies;
  if (facts.id.shape.n_layer == 0) {
    LogWarning("{} has no experts: all of it is resident", facts.id.name);
  } else {
    TRY(policies, PolicySource::Find(options.policy, options.policy_file, file.paths().front()));
  }
  TRY(slots, ExpertSlots::Create(
                 {.id = facts.id,
                  .catalog = catalog,
                  .reader = *reader,
                  .options = options,
                  .paths = file.paths()},
                 std::move(planned), policies,
                 {.max_in_flight = options.io_depth, .max_speculative = options.io_depth}));
  return {};
}

void HostedEngine::Running::FindFacts() {
  slots->AddTo(facts);
  facts.engine = "hosted";
  facts.n_vocab = model->n_vocab();
  facts.n_ctx_train = model->n_ctx_train();
  facts.has_states = facts.divides_at_kept = model->has_states();
  facts.position_bytes = facts.memory.kv / std::max<uint64_t>(model->n_cells(), 1);
  facts.kernels = Format("libllama {}, ggml {}", llama_version(), ggml_version());
  facts.description = Format("hosted by {}, {} threads, {}", facts.kernels,
                             ResolveThreads(options.threads), reader->description());
}

Status HostedEngine::Running::Load() {
  TRY(cpu, CpuDevice::Open(options.threads));
  TRY(team, Team::Create(*cpu));
  // libllama computes on the same threads: OpenMP has one team for each size.
  TRY(fast, FastCores::Begin(options.numa_machine, *team));
  state.report("loading", 0, model->dense_bytes());
  TRY_STATUS(model->LoadDense(slots->queue()));
  state.report("loading", model->dense_bytes(), model->dense_bytes());
  TRY_STATUS(slots->Allocate());
  products.emplace(model->graph(), catalog, slots->residency());
  TRY_STATUS(slots->Populate(*team, state.report));
  if (options.repack) {
    kernels.emplace(model->graph(), cpu->threads());
    TRY_STATUS(team->Run([this](int thread, int n_threads) {
      kernels->LayOutDense(static_cast<size_t>(thread), static_cast<size_t>(n_threads));
    }));
  }
  if (facts.max_look_ahead > 0) {
    TRY(early, EarlyRouters::Create(model->graph(), *cpu));
  }
  tables.emplace(model->tables_in_file());
  return Decide();
}

uint64_t HostedEngine::Running::EarlyRouterBytes() const {
  return facts.max_look_ahead > 0 ? EarlyRouters::BytesFor(model->graph()) : 0;
}

// The decisions of every layer, as the native engine and the simulator make them.
Status HostedEngine::Running::Decide() {
  TRY(const PredictorChoice choice, HostedPredictor(options, facts, file.paths().front()));
  TRY(decisions, LayerDecisions::Create(
                     choice, *slots, {.look_ahead = choice.name != "none" ? options.prefetch : 0}));
  frame.emplace(slots->residency(), *decisions, watch, state,
                StepFrame::Clocks{.waited = [this] { return server->wait_seconds(); },
                                  .now = options.clock,
                                  .table = [this] { return tables->counts(); }});
  server.emplace(GraphServer::Products{.graph = model->graph(),
                                       .slots = *products,
                                       .kernels = kernels ? &*kernels : nullptr,
                                       .early = early ? &*early : nullptr,
                                       .tables = &*tables},
                 *frame, model->hooks());
  if (embeds) embeddings.emplace(*model, *server, *frame, facts.chunk);
  kit.emplace(*team, *slots, *decisions, *frame);
  return {};
}

// The number of rows from `first` on that go through the layers together. A chunk ends before more
// rows with logits than `outputs`, and before rows that libllama would put into another graph,
// since the server is given the rows of one graph.
size_t HostedEngine::Running::ChunkFrom(const Batch& batch, size_t first) const {
  size_t n = 0;
  size_t wanted = 0;
  for (; n < facts.chunk && first + n < batch.size(); ++n) {
    // An observer of routing gets every row in the last layers, too.
    if (batch.rows[first + n].wants_logits || state.watchers.route) ++wanted;
    if (wanted > outputs) break;
    if (facts.has_states && batch.rows[first + n].is_kept) {  // later states go elsewhere
      ++n;
      break;
    }
  }
  return facts.has_states ? EvenRows(std::span(batch.rows).subspan(first, n)) : n;
}

Status HostedEngine::Running::Compute(const Batch& batch, const LogitsSink& sink) {
  const bool is_prompt = !batch.has_decode_rows();
  const double looked = server->look_ahead_seconds();
  const StepFrame::StepBegin begin = frame->BeginStep({});
  for (size_t first = 0; first < batch.size();) {
    TRY(first, ComputeFrom(batch, first, sink));
  }
  if (!is_prompt) frame->StepDone(begin, batch.rows, server->look_ahead_seconds() - looked);
  return {};
}

// Computes the chunk from row `first` on; returns the row behind it.
Result<size_t> HostedEngine::Running::ComputeFrom(const Batch& batch, size_t first,
                                                  const LogitsSink& sink) {
  if (!batch.has_decode_rows()) state.report("prefill", first, batch.size());
  const size_t n = ChunkFrom(batch, first);
  TRY_STATUS(ComputeChunk(std::span(batch.rows).subspan(first, n), first, sink));
  return first + n;
}

Status HostedEngine::Running::ComputeChunk(std::span<const BatchRow> part, size_t first,
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
        row.wants_logits || state.watchers.route || (!has_logits && i + 1 == part.size());
    batch.Add(row.token, row.position, sequences->WritesTo(row.sequence, row.position), is_output);
    kinds.push_back(row.kind);
    if (is_output) kinds_of_outputs.push_back(row.kind);
  }
  // Keys and values are libllama's, and are not counted.
  frame->AddDense(model->whole_bytes());
  const bool decodes = std::ranges::contains(kinds, RowKind::kDecode);
  server->Begin({.kinds = kinds,
                 .kinds_of_outputs = kinds_of_outputs,
                 .look_ahead = std::max(decodes ? decisions->planner().look_ahead() : 0,
                                        state.watchers.look_ahead)});
  TRY_STATUS(server->Decode(batch, model->context()));
  return GiveLogits(part, first, sink);
}

Status HostedEngine::Running::GiveLogits(std::span<const BatchRow> part, size_t first,
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

namespace {

Status CheckEmbedded(std::span<const Token> text, const EngineFacts& facts) {
  if (text.empty()) return Fail(Errc::kInvalidRequest, "a text without tokens has no embedding");
  if (text.size() > facts.n_ctx) {
    return Fail(Errc::kInvalidRequest,
                "{} tokens do not fit a context of {}; raise --ctx (this model allows {})",
                text.size(), facts.n_ctx, facts.n_ctx_train);
  }
  const auto is_known = [&](Token token) {
    return token >= 0 && static_cast<uint32_t>(token) < facts.n_vocab;
  };
  const auto odd = std::ranges::find_if_not(text, is_known);
  if (odd == text.end()) return {};
  return Fail(Errc::kInvalidRequest, "token {} is outside the vocabulary (0 to {})", *odd,
              facts.n_vocab - 1);
}

}  // namespace

HostedEngine::HostedEngine(std::unique_ptr<Running> running)
    : SlotEngine(running->state), running_(std::move(running)) {}
HostedEngine::~HostedEngine() = default;

Result<std::unique_ptr<HostedEngine>> HostedEngine::Open(GgufFile file,
                                                         const EngineOptions& options,
                                                         Progress progress, HostedUse use) {
  auto running = std::make_unique<Running>(std::move(file), options, use, std::move(progress));
  TRY_STATUS(running->OpenModel());
  TRY(PlannedMemory planned, running->PlanSlots());
  TRY_STATUS(running->MakeSlots(std::move(planned)));
  running->FindFacts();
  if (options.planned) options.planned(running->facts.memory);
  TRY_STATUS(running->Load());
  return std::unique_ptr<HostedEngine>(new HostedEngine(std::move(running)));
}

Result<MemoryPlan> HostedEngine::Plan(GgufFile file, const EngineOptions& options, HostedUse use) {
  Running running(std::move(file), options, use);
  TRY_STATUS(running.OpenModel());
  TRY(PlannedMemory planned, running.PlanSlots());
  return std::move(planned.plan);
}

EngineKit* HostedEngine::kit() const { return &*running_->kit; }
StepSequences& HostedEngine::sequences() const { return *running_->sequences; }
const EngineFacts& HostedEngine::facts() const { return running_->facts; }

Status HostedEngine::CheckMore(const Batch& batch) const {
  if (!batch.little.is_on()) return {};
  return Fail(Errc::kInvalidRequest, "the hosted engine takes no step with fewer experts");
}

Status HostedEngine::Compute(const Batch& batch, const LogitsSink& sink) {
  return running_->Compute(batch, sink);
}

Embedder* HostedEngine::embedder() { return running_->embeds ? this : nullptr; }
uint32_t HostedEngine::n_embd() const { return running_->model->n_embd(); }

Result<size_t> HostedEngine::Embed(Texts texts, const Sink& sink) {
  Running& m = *running_;
  if (closed()) return std::unexpected(*closed());
  for (const std::span<const Token> text : texts) TRY_STATUS(CheckEmbedded(text, m.facts));
  BeginTexts();
  PhaseStats& phase = m.state.stats.prefill;
  size_t done = 0;
  const auto compute = [&]() -> Status {
    TRY(done, m.embeddings->Compute(texts, sink));
    return {};
  };
  {
    const StepFrame::Phase counted(*m.frame, phase);
    TRY_STATUS(counted.End(compute()));
  }
  for (const std::span<const Token> text : texts.first(done)) phase.tokens += text.size();
  return done;
}

// A chunk of a prompt is a piece: libllama has the rows between layers.
class HostedEngine::Chunks final : public StepPieces {
 public:
  Chunks(Running& running, const Batch& batch, LogitsSink sink)
      : running_(running), batch_(batch), sink_(std::move(sink)) {}
  Result<bool> Advance() override {
    if (std::exchange(begins_, false)) running_.frame->BeginStep({});
    TRY(first_, running_.ComputeFrom(batch_, first_, sink_));
    return first_ == batch_.size();
  }
  Status MakeWay(size_t /*n_rows*/) override {
    begins_ = true;
    return {};
  }

 private:
  Running& running_;
  const Batch& batch_;
  const LogitsSink sink_;
  size_t first_ = 0;
  bool begins_ = true;  // the decisions are those of another step
};

std::unique_ptr<StepPieces> HostedEngine::PiecesOf(const Batch& batch, LogitsSink sink) {
  if (batch.has_decode_rows()) return nullptr;
  return std::make_unique<Chunks>(*running_, batch, std::move(sink));
}

Result<KvOrigin> HostedEngine::kv_origin() {
  TRY(TextHome home, running_->origin->Home(running_->facts, running_->options.kv_type));
  return std::move(home.origin);
}

Status HostedEngine::SaveSequence(const Sequence& sequence, const std::string& notes,
                                  const OutputPath& path) {
  Running& m = *running_;
  TRY(const TextHome home, m.origin->Home(m.facts, m.options.kv_type));
  HostedMemory memory;
  if (sequence.position() > 0) {
    TRY(memory, m.sequences->Save(sequence.id()));
  }
  return WriteHosted(path, home, sequence.tokens(), notes, memory);
}

Result<SavedTokens> HostedEngine::PeekSequence(const std::string& path) {
  TRY(const TextHome home, running_->origin->Home(running_->facts, running_->options.kv_type));
  return PeekHosted(path, home);
}

Result<SavedSequence> HostedEngine::RestoreSequence(const std::string& path) {
  Running& m = *running_;
  TRY(const TextHome home, m.origin->Home(m.facts, m.options.kv_type));
  TRY(HostedText read, ReadHosted(path, home));
  SavedSequence saved{.sequence = NewSequence(), .notes = std::move(read.text.notes)};
  if (read.text.tokens.empty()) return saved;
  const Status restored = m.sequences->Restore(saved.sequence.id(), read.text.tokens, read.memory);
  if (!restored && restored.error().code == Errc::kInvalidFile) {
    return Fail(Errc::kInvalidFile, "{}: {}; start a new one", path, restored.error().message);
  }
  TRY_STATUS(restored);
  return saved;
}

}  // namespace moestro
