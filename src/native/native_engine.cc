// SPDX-License-Identifier: MIT
// Forwards the engine's calls to its parts, and makes the parts again when a device is lost.
#include "native/native_engine.h"

#include <cstddef>
#include <exception>
#include <utility>

#include "base/check.h"
#include "base/format.h"
#include "base/log.h"
#include "device/memory_probe.h"
#include "engine/plan/io_depth.h"
#include "native/cost_probe.h"
#include "native/engine_parts.h"
#include "native/step_probe.h"
#include "store/probe.h"

namespace moestro {
namespace {

BatchRow LastRowOf(const Sequence& sequence) {
  return {.sequence = sequence.id(),
          .position = sequence.position() - 1,
          .token = sequence.tokens().back()};
}

}  // namespace

NativeEngine::NativeEngine(std::unique_ptr<Lasting> lasting, std::unique_ptr<Running> running)
    : lasting_(std::move(lasting)), running_(std::move(running)) {}

NativeEngine::~NativeEngine() {
  try {
    if (running_) running_->KeepUses();
  } catch (const std::exception& error) {
    LogInfo("which experts decode used is not kept: {}", error.what());
  }
}

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
  auto running = std::make_unique<Running>();
  Status started = running->Start(options, *lasting);
  const auto has_chosen_devices = [&] {
    return running->devices && running->devices->is_auto() && !running->devices->empty();
  };
  if (!started && started.error().code == Errc::kDevice && has_chosen_devices()) {
    LogWarning("{}; the CPU computes everything", started.error().message);
    EngineOptions again = options;
    again.device = {.name = "cpu"};
    running.reset();  // before the next parts take as much memory
    lasting->sequences.reset();
    running = std::make_unique<Running>();
    started = running->Start(again, *lasting);
  }
  TRY_STATUS(std::move(started));
  return std::unique_ptr<NativeEngine>(new NativeEngine(std::move(lasting), std::move(running)));
}

Result<MemoryPlan> NativeEngine::Plan(const std::string& model_path, const EngineOptions& options) {
  TRY(ModelFile model, ModelFile::Open(model_path));
  Lasting lasting{.model = std::move(model)};
  Running running;
  EngineOptions unmeasured = options;
  if (options.io_depth == 0) unmeasured.io_depth = kIoDepths.front();
  TRY_STATUS(running.Allocate(unmeasured, lasting));
  return running.facts.memory;
}

// Goes on after the first device, and keys and values with it, are lost in the middle of a run: all
// parts are made again for the CPU alone, and the sequences' tokens are computed again.
Status NativeEngine::LeaveDevices(const Error& why) {
  LogWarning("{} is lost ({}); starting again on the CPU",
             running_->devices->first_here()->info().name, why.message);
  EngineOptions again = running_->opened->options;
  const double start = again.clock();
  again.io_depth = running_->slots->io_depth();
  again.chunk = running_->opened->plan.chunk;  // sequences have windows for this chunk
  again.device = {.name = "cpu"};
  lasting_->sequences->LoseStates();
  running_.reset();  // before the next parts take as much memory
  running_ = std::make_unique<Running>();
  const auto end = [this](const char* cannot, const Error& failed) {
    return std::unexpected(lasting_->closed.emplace(Error{
        .code = Errc::kDevice,
        .message =
            Format("the device is lost, and the CPU cannot {}: {}", cannot, failed.message)}));
  };
  const Status started = running_->Start(again, *lasting_);
  if (!started) return end("go on", started.error());
  running_->slots->residency().SetObserver(lasting_->request_observer);
  running_->BeginSequence();
  const Result<size_t> tokens = running_->runner->ComputeAllAgain();
  if (!tokens) return end("compute the texts again", tokens.error());
  LogWarning("the CPU goes on; {} tokens of {} sequences were computed again, in {:.1f} s in all",
             *tokens, lasting_->sequences->ids().size(), again.clock() - start);
  return {};
}

// The reason why a host was left out for wrong results. Within an interlude the reason is left to
// the prompt's own step.
std::optional<Error> NativeEngine::TakeWrong() {
  Running& r = *running_;
  if (!r.joined || r.runner->aside() != nullptr) return std::nullopt;
  return r.joined->TakeWrong();
}

// Computes all sequences again without the host that gave `wrong` results. Keys, values and states
// may follow from such results, so none is kept.
Status NativeEngine::ComputeAgainWithout(const Error& wrong) {
  const double start = running_->opened->options.clock();
  SequenceTable& sequences = *lasting_->sequences;
  for (std::optional<Error> why = wrong; why;) {
    LogWarning(
        "{}; it is left out, and what was said since it was last found right may differ from what "
        "this machine alone would have said",
        why->message);
    sequences.LoseStates();
    const Result<size_t> tokens = running_->runner->ComputeAllAgain();
    why = TakeWrong();
    if (why) continue;
    if (!tokens) {
      return std::unexpected(lasting_->closed.emplace(
          Error{.code = Errc::kDevice,
                .message = Format("a remote host gave wrong results, and the texts cannot be "
                                  "computed again: {}",
                                  tokens.error().message)}));
    }
    LogWarning("{} tokens of {} sequences were computed again, in {:.1f} s", *tokens,
               sequences.ids().size(), running_->opened->options.clock() - start);
  }
  return {};
}

// Fails once a restart has left parts missing.
Status NativeEngine::CheckParts() const {
  if (running_->kept) return {};
  return std::unexpected(*lasting_->closed);
}

Status NativeEngine::Step(const Batch& batch, const LogitsSink& sink, const Interlude& interlude) {
  if (lasting_->closed) return std::unexpected(*lasting_->closed);
  const Interlude* const around = running_->runner->aside();
  if (around == nullptr) return StepWhole(batch, sink, interlude);
  if (batch.size() > around->most_rows) {
    return Fail(Errc::kInvalidRequest, "{} rows between a prompt's layers, where {} may be",
                batch.size(), around->most_rows);
  }
  return StepWhole(batch, sink, {});
}

Status NativeEngine::StepWhole(const Batch& batch, const LogitsSink& sink,
                               const Interlude& interlude) {
  Running& r = *running_;
  TRY_STATUS(r.runner->Check(batch));
  if (!lasting_->sequences->any_lives()) r.BeginSequence();
  TRY_STATUS(r.runner->Extend(batch));
  RunStats& stats = lasting_->stats;
  if (r.joined && !r.joined->tier().is_filled() && batch.has_decode_rows()) {
    auto& joined = *r.joined;
    TRY_STATUS(r.runner->Counted(stats.prefill, [&]() -> Status {
      joined.FillByPrompt(lasting_->stop, r.is_repeatable(), lasting_->report);
      return {};
    }));
  }
  PhaseStats& phase = batch.has_decode_rows() ? stats.decode : stats.prefill;
  const Result<std::span<const float>> exact = CheckExactly(batch);
  if (!exact) {
    r.runner->CutBack(batch);
    if (exact.error().code != Errc::kDevice || !r.may_leave_devices()) {
      return std::unexpected(exact.error());
    }
    TRY_STATUS(LeaveDevices(exact.error()));
    return StepWhole(batch, sink, interlude);  // no devices are left now
  }
  // Each row's logits go to `sink` once, even if the step is computed a second time.
  size_t told = 0;
  size_t known = 0;
  bool is_checked = !exact->empty();
  const LogitsSink sees = [&](size_t row, std::span<const float> logits) {
    if (known > 0) {
      --known;
      return;
    }
    ++told;
    if (is_checked) lasting_->check_observer(*exact, logits);
    if (sink) sink(row, logits);
  };
  const PhaseStats before = phase;
  Status status = ComputeStep(batch, phase, sees, interlude);
  const auto compute_again = [&]() -> Status {
    TRY_STATUS(running_->runner->Extend(batch));
    known = told;
    is_checked = false;  // LeaveDevices() has replaced the parts that own `exact`
    return ComputeStep(batch, phase, sees, interlude);
  };
  std::optional<Error> wrong = TakeWrong();
  const bool is_lost = !status && !wrong && status.error().code == Errc::kDevice;
  if (is_lost && r.joined && r.joined->has_wrong()) {
    status = compute_again();  // an interlude; the prompt's step computes all texts again
  } else if (is_lost && r.may_leave_devices()) {
    TRY_STATUS(LeaveDevices(status.error()));  // destroys `r`
    status = compute_again();
  }
  for (; wrong; wrong = TakeWrong()) {
    TRY_STATUS(ComputeAgainWithout(*wrong));
    if (status) break;  // ComputeAgainWithout() has computed this step, too
    status = compute_again();
  }
  TRY_STATUS(std::move(status));
  if (batch.little.is_on()) return {};  // a little pass adds no tokens
  phase.tokens += batch.size();
  if (batch.has_decode_rows()) {
    stats.decode_ms.Add((phase.seconds - before.seconds) * 1e3);
    stats.decode_bytes.Add(static_cast<double>(phase.needed_bytes - before.needed_bytes));
  }
  return {};
}

// Computes the step in one pass, or in two with LittleFirst.
Status NativeEngine::ComputeStep(const Batch& batch, PhaseStats& phase, const LogitsSink& sink,
                                 const Interlude& interlude) {
  Running& r = *running_;
  return r.runner->Finish(batch, phase, [&] {
    return r.little && r.little->Takes(batch) ? r.little->Compute(batch, sink)
                                              : r.runner->Compute(batch, sink, interlude);
  });
}

// The exact logits of the row if this step is one to be checked; else empty.
Result<std::span<const float>> NativeEngine::CheckExactly(const Batch& batch) {
  Running& r = *running_;
  const BatchRow& row = batch.rows.front();
  const bool is_checkable = r.exact_check && lasting_->check_observer && batch.size() == 1 &&
                            row.kind == RowKind::kDecode && row.wants_logits;
  if (!is_checkable || ++lasting_->checkable_steps % r.opened->options.check_every != 0) {
    return std::span<const float>();
  }
  // Reads under way belong to the decode phase and count there.
  TRY_STATUS(r.runner->Counted(lasting_->stats.decode, [&r] {
    r.slots->residency().Drain();
    return Status();
  }));
  TRY_STATUS(r.runner->Advance(batch.rows));
  const StepRunner::Runs runs = r.runner->RunsOf(row.sequence);
  auto exact = r.exact_check->Evaluate(r.runner->RowOf(row, runs));
  if (!exact && exact.error().code == Errc::kInterrupted) lasting_->stop.Take();
  return exact;
}

Status NativeEngine::MakeUp(const Sequence& sequence, std::span<const Token> tokens,
                            uint64_t seed) {
  if (lasting_->closed) return std::unexpected(*lasting_->closed);
  Running& r = *running_;
  CHECK(sequence.position() == 0);
  TRY_STATUS(r.runner->Check(PromptOf(sequence.id(), tokens)));
  if (!lasting_->sequences->any_lives()) r.BeginSequence();
  return r.runner->MakeUp(sequence.id(), tokens, seed);
}

void NativeEngine::AwaitHosts() {
  if (running_->joined) running_->joined->AwaitShares();
}

Status NativeEngine::Preload() {
  TRY_STATUS(CheckParts());
  return ReadAllExperts(running_->slots->residency(), running_->opened->catalog,
                        running_->slots->memory(), lasting_->report);
}

bool NativeEngine::WorkWhileIdle() {
  if (!CheckParts()) return false;
  Residency& residency = running_->slots->residency();
  if (!residency.is_recalling()) return false;
  residency.RecallAhead(running_->opened->options.recall.bytes_at_a_time);
  residency.WaitBriefly();
  return true;
}

Result<double> NativeEngine::ProbeDiskBandwidth() {
  TRY_STATUS(CheckParts());
  return running_->slots->ProbeReads(ProbeOptions().total);
}

Result<double> NativeEngine::ProbeMemoryBandwidth() {
  TRY_STATUS(CheckParts());
  Residency& residency = running_->slots->residency();
  residency.Settle();  // the probe needs slots that no read writes to
  return ProbeReadBandwidth(*running_->team, residency.memory());
}

// The last row of each sequence; empty: some row cannot be computed again.
Batch NativeEngine::LastRows(std::span<Sequence* const> sequences) const {
  Batch again;
  for (const Sequence* sequence : sequences) {
    if (sequence->position() == 0) return {};
    again.rows.push_back(LastRowOf(*sequence));
  }
  if (again.rows.empty() || !running_->runner->CanRepeat(again)) return {};
  return again;
}

ProbedPasses NativeEngine::PassesToProbe() const {
  return {.first = running_->opened->little, .share = lasting_->stats.little.fallback_share()};
}

Result<std::optional<double>> NativeEngine::ProbeComputeSeconds(
    std::span<Sequence* const> sequences) {
  TRY_STATUS(CheckParts());
  Running& r = *running_;
  const Batch again = LastRows(sequences);
  if (again.rows.empty()) return std::optional<double>();
  Result<std::optional<double>> probed = ProbeStep(*r.runner, again, PassesToProbe());
  if (probed || probed.error().code != Errc::kDevice || !r.may_leave_devices()) return probed;
  // LeaveDevices() computes these rows, which were cut back, with all others
  TRY_STATUS(r.runner->Extend(again));
  TRY_STATUS(LeaveDevices(probed.error()));
  return std::optional<double>();
}

Result<std::optional<Engine::Together>> NativeEngine::ProbeTogether(
    std::span<Sequence* const> sequences) {
  TRY_STATUS(CheckParts());
  Running& r = *running_;
  const Batch again = LastRows(sequences);
  if (again.rows.empty() || !r.devices->empty()) return std::optional<Together>();
  ProbedPasses passes = PassesToProbe();
  passes.takes_mean = true;
  TRY(const std::unique_ptr<ReadsBeside> reads, r.slots->ReadBeside());
  const Result<std::optional<double>> step = ProbeStep(*r.runner, again, passes);
  TRY(const double bandwidth, reads->Stop());
  if (!step) return std::unexpected(step.error());
  if (!*step) return std::optional<Together>();
  return std::optional(Together{.compute_seconds = **step, .disk_bandwidth = bandwidth});
}

Result<std::optional<MachineCosts>> NativeEngine::ProbeCosts(const Sequence& sequence) {
  TRY_STATUS(CheckParts());
  Running& r = *running_;
  const EngineOptions& options = r.opened->options;
  if (!r.devices->empty() || r.little || !options.lossy.is_exact(r.opened->catalog.has_low())) {
    return Fail(Errc::kInvalidRequest,
                "what decode costs is measured without devices and with every expert as it is");
  }
  if (sequence.position() == 0) return std::optional<MachineCosts>();
  r.slots->residency().Settle();
  const Batch again{.rows = {LastRowOf(sequence)}};
  if (!r.runner->CanRepeat(again)) return std::optional<MachineCosts>();
  r.prefetch->planner().Pause(true);
  // Routers are always evaluated ahead meanwhile; otherwise prefetch's recent gain decides that.
  const uint32_t watched = std::exchange(watchers().look_ahead, r.opened->plan.look_ahead);
  Result<std::optional<MachineCosts>> costs = MeasureCosts({.runner = *r.runner,
                                                            .residency = r.slots->residency(),
                                                            .queue = r.slots->queue(),
                                                            .experts = *r.experts,
                                                            .watchers = watchers(),
                                                            .catalog = r.opened->catalog,
                                                            .shape = lasting_->model.id.shape},
                                                           again);
  watchers().look_ahead = watched;
  r.prefetch->planner().Pause(false);
  if (!costs) return costs;
  // Repeats the token with the experts of its own routing, for its keys and values.
  PhaseStats uncounted;
  TRY_STATUS(r.runner->Repeat(again, uncounted));
  return costs;
}

Result<KvOrigin> NativeEngine::kv_origin() {
  TRY_STATUS(CheckParts());
  return running_->kept->Origin();
}
Status NativeEngine::SaveSequence(const Sequence& sequence, const std::string& notes,
                                  const OutputPath& path) {
  TRY_STATUS(CheckParts());
  // Saves only results of hosts that pass CheckResults(): wrong results in a file would outlast the
  // run.
  while (running_->joined) {
    const Status checked = running_->joined->CheckResults();
    if (checked) break;
    const std::optional<Error> wrong = TakeWrong();
    if (!wrong) return checked;
    TRY_STATUS(ComputeAgainWithout(*wrong));
  }
  return running_->kept->Save(sequence.id(), notes, path);
}
Result<SavedTokens> NativeEngine::PeekSequence(const std::string& path) {
  TRY_STATUS(CheckParts());
  return running_->kept->Peek(path);
}
Result<SavedSequence> NativeEngine::RestoreSequence(const std::string& path) {
  TRY_STATUS(CheckParts());
  return running_->kept->Restore(path);
}

const EngineFacts& NativeEngine::facts() const { return running_->facts; }
const std::optional<Error>& NativeEngine::closed() const { return lasting_->closed; }
const ModelSpec& NativeEngine::spec() const { return lasting_->model.spec; }
RunStats& NativeEngine::stats() { return lasting_->stats; }
Watchers& NativeEngine::watchers() { return lasting_->watchers; }
Sequence NativeEngine::NewSequence() { return {*lasting_->sequences, lasting_->sequences->New()}; }
void NativeEngine::RequestStop() { lasting_->stop.Request(); }
Engine::KvRoom NativeEngine::kv_room() const {
  const SequenceTable& sequences = *lasting_->sequences;
  return {.free = sequences.blocks().free_blocks() * KvBlocks::kPositions,
          .all = sequences.blocks().blocks() * KvBlocks::kPositions,
          .places = sequences.available_places().value_or(KvRoom::kAnyNumber),
          .rests_hold_places = sequences.rests_hold_places()};
}

EngineLearned NativeEngine::learned() const {
  EngineLearned learned;
  if (running_->prefetch && running_->opened->plan.look_ahead > 0) {
    learned.predictions = running_->prefetch->planner().scores();
  }
  if (running_->joined) {
    learned.device = running_->joined->tier().stats();
    learned.device.layers_there = running_->forward->layers_there();
    learned.lane_ratios = running_->joined->ratios();
  }
  return learned;
}
std::vector<SlotContents> NativeEngine::slot_contents() const {
  return running_->slots ? running_->slots->contents() : std::vector<SlotContents>();
}
ExpertPlace NativeEngine::place_of(ExpertKey key) const {
  return PlaceOf(running_->opened->catalog, key);
}
ResidentModel NativeEngine::MakeResidentModel() const {
  return running_->slots->MakeResidentModel();
}
std::span<const std::vector<ExpertId>> NativeEngine::widened() const {
  if (!running_->forward) return {};
  return running_->forward->widened();
}
void NativeEngine::FinishReads() {
  if (running_->slots) running_->slots->residency().Drain();
}

void NativeEngine::SetProgress(Progress progress) { lasting_->progress = std::move(progress); }
void NativeEngine::SetRoutingOverride(RoutingOverride routing) {
  watchers().routing = std::move(routing);
}
void NativeEngine::SetCopyOverride(CopyOverride copies) { watchers().copies = std::move(copies); }
void NativeEngine::SetExpertObserver(ExpertObserver observer) {
  watchers().experts = std::move(observer);
}
void NativeEngine::SetRequestObserver(const SlotTable::Observer& observer) {
  lasting_->request_observer = observer;
  if (running_->slots) running_->slots->residency().SetObserver(observer);
}
void NativeEngine::SetCheckObserver(CheckObserver observer) {
  lasting_->check_observer = std::move(observer);
}

Result<NativeEngine*> AsNative(Engine& engine, std::string_view what) {
  if (auto* const native = dynamic_cast<NativeEngine*>(&engine)) return native;
  return Fail(Errc::kUnsupported,
              "{} needs the native engine, and {} runs on the {} one (libllama's forward pass)",
              what, engine.facts().arch_name, engine.facts().engine);
}

}  // namespace moestro
