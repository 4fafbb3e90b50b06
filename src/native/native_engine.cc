// SPDX-License-Identifier: MIT
// Forwards the engine's calls to its parts, and makes the parts again when a device is lost.
#include "native/native_engine.h"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <utility>

#include "base/result.h"
#include "base/terminal.h"
#include "base/text.h"
#include "engine/plan/io_depth.h"
#include "native/cost_probe.h"
#include "native/engine_parts.h"

namespace moestro {
namespace {

// The model as the options ask for it: with its layer that predicts further tokens, or without.
Result<ModelFile> AsAsked(ModelFile model, const EngineOptions& options) {
  if (!options.predicts) return model;
  return ModelFile::Of(model.gguf, Families(), NextTokens::kRead);
}

// Predicting layers are computed in memory, so devices that nobody asked for are not used.
EngineOptions OnCpu(const EngineOptions& options) {
  EngineOptions chosen = options;
  if (options.predicts && options.device.name == "auto") chosen.device.name = "cpu";
  return chosen;
}

}  // namespace

NativeEngine::NativeEngine(std::unique_ptr<Lasting> lasting, std::unique_ptr<Running> running)
    : SlotEngine(lasting->state), lasting_(std::move(lasting)), running_(std::move(running)) {}

NativeEngine::~NativeEngine() {
  try {
    if (running_) running_->KeepUses();
    if (running_) running_->ForgetOldCosts();
  } catch (const std::exception& error) {
    LogInfo("facts of this run are not kept: {}", error.what());
  }
}

Result<std::unique_ptr<NativeEngine>> NativeEngine::Open(const std::string& model_path,
                                                         const EngineOptions& options,
                                                         Progress progress) {
  TRY(ModelFile model, ModelFile::Open(model_path));
  return Open(std::move(model), options, std::move(progress));
}

Result<std::unique_ptr<NativeEngine>> NativeEngine::Open(ModelFile file, const EngineOptions& asked,
                                                         Progress progress) {
  TRY(ModelFile model, AsAsked(std::move(file), asked));
  const EngineOptions options = OnCpu(asked);
  std::unique_ptr<Lasting> lasting(new Lasting{
      .model = std::move(model), .state = EngineState(options.at_look, std::move(progress))});
  auto running = std::make_unique<Running>();
  Status started = running->Start(options, *lasting);
  if (!started && running->leaves_devices_for(started.error())) {
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

Result<MemoryPlan> NativeEngine::Plan(const std::string& model_path, const EngineOptions& asked) {
  TRY(ModelFile file, ModelFile::Open(model_path));
  TRY(ModelFile model, AsAsked(std::move(file), asked));
  const EngineOptions options = OnCpu(asked);
  Lasting lasting{.model = std::move(model), .state = EngineState({}, {})};
  EngineOptions unmeasured = options;
  if (options.io_depth == 0) unmeasured.io_depth = kIoDepths.front();
  auto running = std::make_unique<Running>();
  Status allocated = running->Allocate(unmeasured, lasting);
  if (!allocated && running->leaves_devices_for(allocated.error())) {
    unmeasured.device = {.name = "cpu"};
    running.reset();  // before the next parts take as much memory
    lasting.sequences.reset();
    running = std::make_unique<Running>();
    allocated = running->Allocate(unmeasured, lasting);
  }
  TRY_STATUS(std::move(allocated));
  return running->facts.memory;
}

// Goes on after the first device, and keys and values with it, are lost in the middle of a run.
Status NativeEngine::LoseDevices(const Error& why) {
  return LeaveDevices(Format("{} is lost ({}); starting again on the CPU",
                             running_->devices->first_here()->info().name, why.message));
}

// Counts the step's seconds, if it decoded one row, and leaves devices once the CPU alone is
// expected to decode faster.
Status NativeEngine::LeaveSlowDevices(const Batch& batch, double seconds) {
  Running& r = *running_;
  if (!r.ways || !r.ways->may_leave_later || batch.size() != 1 || !batch.has_decode_rows()) {
    return {};
  }
  if (!r.watch.Note(seconds) || !may_leave_devices()) return {};
  const double alone = PriceWays(r.ways->of, r.joined->tier().model()).Of(DeviceWay::kCpu);
  if (!r.watch.is_slower_than(alone)) return {};
  constexpr double kMs = 1e3;
  return LeaveDevices(
      Format("{} tokens took {:.1f} ms each with {}, and the CPU alone is expected to take {:.1f}; "
             "starting again on the CPU",
             WayWatch::kTokens, kMs * *r.watch.median(), r.devices->first_here()->info().name,
             kMs * alone));
}

// Makes all parts again for the CPU alone, and computes the sequences' tokens again.
Status NativeEngine::LeaveDevices(const std::string& why) {
  LogWarning("{}", why);
  EngineOptions again = running_->opened->options;
  const double start = again.clock();
  again.io_depth = running_->slots->io_depth();
  again.chunk = running_->opened->plan.chunk;  // sequences have windows for this chunk
  again.device = {.name = "cpu"};
  lasting_->sequences->LoseStates();
  lasting_->exact = {};  // owned by the parts
  running_.reset();      // before the next parts take as much memory
  running_ = std::make_unique<Running>();
  const auto end = [this](const char* cannot, const Error& failed) {
    return std::unexpected(state().closed.emplace(Error{
        .code = Errc::kDevice,
        .message =
            Format("the device is lost, and the CPU cannot {}: {}", cannot, failed.message)}));
  };
  const Status started = running_->Start(again, *lasting_);
  if (!started) return end("go on", started.error());
  running_->slots->residency().SetObserver(state().request_observer);
  running_->decisions->BeginSequence();
  const Result<size_t> tokens = running_->runner->ComputeAllAgain();
  if (!tokens) return end("compute the texts again", tokens.error());
  LogWarning("the CPU goes on; {} tokens of {} sequences were computed again, in {:.1f} s in all",
             *tokens, lasting_->sequences->ids().size(), again.clock() - start);
  return {};
}

// A restart makes the parts again that a run's rows use.
bool NativeEngine::may_leave_devices() const { return running_->may_leave_devices() && !has_run(); }

// The reason why a host was left out for wrong results. Between the pieces of a run the reason is
// left to the run's end.
std::optional<Error> NativeEngine::TakeWrong() {
  if (!running_->joined || has_run()) return std::nullopt;
  return running_->joined->TakeWrong();
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
      return std::unexpected(state().closed.emplace(
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

EngineKit* NativeEngine::kit() const { return running_->kit ? &*running_->kit : nullptr; }
StepSequences& NativeEngine::sequences() const { return *lasting_->sequences; }
Status NativeEngine::CheckMore(const Batch& batch) const { return running_->runner->Check(batch); }
LittleStep NativeEngine::first_pass() const { return running_->opened->little; }
bool NativeEngine::computes_alone() const { return running_->devices->empty(); }

// Computes the rows in one pass, or in two with LittleFirst.
Status NativeEngine::Compute(const Batch& batch, const LogitsSink& sink) {
  Running& r = *running_;
  return r.little && r.little->Takes(batch) ? r.little->Compute(batch, sink)
                                            : r.runner->Compute(batch, sink);
}

std::unique_ptr<StepPieces> NativeEngine::PiecesOf(const Batch& batch, LogitsSink sink) {
  return running_->runner->PiecesOf(batch, std::move(sink));
}

Status NativeEngine::ComputeStep(const Batch& batch, StepCount& count, const LogitsSink& sink) {
  Running& r = *running_;
  SequenceTable& sequences = *lasting_->sequences;
  if (r.joined && r.joined->tier().wants_fill() && batch.has_decode_rows()) {
    const bool is_begin = !r.joined->tier().is_filled();
    const StepFrame::Phase counted(*r.frame, is_begin ? state().stats.prefill : count.phase);
    r.joined->FillByUses(state().stop, r.is_repeatable(), state().report);
  }
  Result<std::span<const float>> exact = CheckExactly(batch);
  lasting_->exact = exact.value_or(std::span<const float>());
  if (!exact) {
    const Error why = exact.error();
    sequences.Undo(batch);
    if (why.code != Errc::kDevice || !may_leave_devices()) return std::unexpected(why);
    TRY_STATUS(LoseDevices(why));  // destroys `r`
    TRY_STATUS(sequences.Append(batch));
  }
  count.before = count.phase;
  LogitsOnce once([&](size_t row, std::span<const float> logits) {
    if (!lasting_->exact.empty()) lasting_->check_observer(lasting_->exact, logits);
    if (sink) sink(row, logits);
  });
  const Clock clock = running_->opened->options.clock;
  const double start = clock();
  TRY_STATUS(EndPieces(ComputeCounted(batch, count.phase, once.sink()), batch, count.phase, once));
  return LeaveSlowDevices(batch, clock() - start);
}

// Goes on without lost devices and lying hosts, and computes the rows again.
Status NativeEngine::EndPieces(Status computed, const Batch& batch, PhaseStats& phase,
                               LogitsOnce& logits) {
  const auto compute_again = [&]() -> Status {
    TRY_STATUS(lasting_->sequences->Append(batch));
    logits.Repeat();
    return ComputeCounted(batch, phase, logits.sink());
  };
  std::optional<Error> wrong = TakeWrong();
  const bool is_lost = !computed && !wrong && computed.error().code == Errc::kDevice;
  if (is_lost && running_->joined && running_->joined->has_wrong()) {
    computed = compute_again();  // between the pieces of a run, which computes all texts again
  } else if (is_lost && may_leave_devices()) {
    TRY_STATUS(LoseDevices(computed.error()));
    computed = compute_again();
  }
  for (; wrong; wrong = TakeWrong()) {
    TRY_STATUS(ComputeAgainWithout(*wrong));
    if (computed) break;  // ComputeAgainWithout() has computed this step, too
    computed = compute_again();
  }
  return computed;
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
  {
    const StepFrame::Phase counted(*r.frame, state().stats.decode);
    r.slots->residency().Drain();
  }
  TRY_STATUS(r.runner->Advance(batch.rows));
  const StepRunner::Runs runs = r.runner->RunsOf(row.sequence);
  auto exact = r.exact_check->Evaluate(r.runner->RowOf(row, runs));
  if (!exact && exact.error().code == Errc::kInterrupted) state().stop.Take();
  return exact;
}

Status NativeEngine::MakeUp(const Sequence& sequence, std::span<const Token> tokens,
                            uint64_t seed) {
  if (closed()) return std::unexpected(*closed());
  CHECK(sequence.position() == 0);
  TRY_STATUS(Check(PromptOf(sequence.id(), tokens)));
  BeginTexts();
  return running_->runner->MakeUp(sequence.id(), tokens, seed);
}

Result<std::vector<Token>> NativeEngine::Predict(const Sequence& sequence, Token newest,
                                                 uint32_t most) {
  if (closed()) return std::unexpected(*closed());
  CHECK(facts().predicts());
  Batch rows;
  const uint32_t first = sequence.position();
  for (uint32_t p = first; p < std::min(first + most, n_ctx()); ++p) {
    rows.rows.push_back({.sequence = sequence.id(), .position = p, .token = newest});
  }
  // A run's rows are in the buffers.
  if (rows.rows.empty() || has_run()) return std::vector<Token>();
  TRY_STATUS(Check(rows));
  if (!lasting_->sequences->Append(rows)) return std::vector<Token>();  // no room
  Result<std::vector<Token>> drafted;
  {
    const StepFrame::Phase counted(*running_->frame, state().stats.decode);
    drafted = running_->runner->Predict(rows.rows);
    [[maybe_unused]] const Status ended =
        counted.End(drafted ? Status() : std::unexpected(drafted.error()));
  }
  lasting_->sequences->Undo(rows);
  return drafted;
}

Result<std::optional<double>> NativeEngine::ProbeComputeSeconds(
    std::span<Sequence* const> sequences) {
  const Batch again = LastRows(sequences);
  Result<std::optional<double>> probed = SlotEngine::ProbeComputeSeconds(sequences);
  const bool is_lost = !probed && probed.error().code == Errc::kDevice;
  if (!is_lost || kit() == nullptr || !may_leave_devices()) return probed;
  // LeaveDevices() computes these rows, which were cut back, with all others
  TRY_STATUS(lasting_->sequences->Append(again));
  TRY_STATUS(LoseDevices(probed.error()));
  return std::optional<double>();
}

Result<std::optional<MachineCosts>> NativeEngine::ProbeCosts(const Sequence& sequence) {
  TRY_STATUS(Kit());
  Running& r = *running_;
  const EngineOptions& options = r.opened->options;
  if (!r.devices->empty() || r.little || !options.lossy.is_exact(r.opened->catalog.has_low())) {
    return Fail(Errc::kInvalidRequest,
                "what decode costs is measured without devices and with every expert as it is");
  }
  const Sequence* const last = &sequence;
  const Batch again = LastRows({&last, 1});
  if (again.rows.empty()) return std::optional<MachineCosts>();
  r.slots->residency().Settle();
  PrefetchPlanner& planner = r.decisions->planner();
  planner.Pause(true);
  // Routers are always evaluated ahead meanwhile; otherwise prefetch's recent gain decides that.
  const uint32_t watched = std::exchange(watchers().look_ahead, r.opened->plan.look_ahead);
  const auto repeat = [&](PhaseStats& once) { return Repeat(again, once); };
  Result<std::optional<MachineCosts>> costs = MeasureCosts({.repeat = repeat,
                                                            .residency = r.slots->residency(),
                                                            .queue = r.slots->queue(),
                                                            .experts = *r.experts,
                                                            .watchers = watchers(),
                                                            .catalog = r.opened->catalog,
                                                            .shape = lasting_->model.id.shape});
  watchers().look_ahead = watched;
  planner.Pause(false);
  if (!costs) return costs;
  // Repeats the token with the experts of its own routing, for its keys and values.
  PhaseStats uncounted;
  TRY_STATUS(Repeat(again, uncounted));
  return costs;
}

Result<KvOrigin> NativeEngine::kv_origin() {
  TRY_STATUS(Kit());
  return running_->kept->Origin();
}
Status NativeEngine::SaveSequence(const Sequence& sequence, const std::string& notes,
                                  const OutputPath& path) {
  TRY_STATUS(Kit());
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
  TRY_STATUS(Kit());
  return running_->kept->Peek(path);
}
Result<SavedSequence> NativeEngine::RestoreSequence(const std::string& path) {
  TRY_STATUS(Kit());
  return running_->kept->Restore(path);
}

const EngineFacts& NativeEngine::facts() const { return running_->facts; }
const ModelSpec& NativeEngine::spec() const { return lasting_->model.spec; }

EngineLearned NativeEngine::learned() const {
  EngineLearned learned = SlotEngine::learned();
  if (running_->joined) {
    learned.device = running_->joined->tier().stats();
    learned.device.layers_there = running_->forward->layers_there();
    learned.device.traffic = running_->joined->traffic();
    learned.lane_ratios = running_->joined->ratios();
  }
  return learned;
}
std::span<const std::vector<ExpertId>> NativeEngine::widened() const {
  if (!running_->forward) return {};
  return running_->forward->widened();
}

void NativeEngine::AwaitHosts() {
  if (running_->joined) running_->joined->AwaitShares();
}
void NativeEngine::SetRoutingOverride(RoutingOverride routing) {
  watchers().routing = std::move(routing);
}
void NativeEngine::SetCopyOverride(CopyOverride copies) { watchers().copies = std::move(copies); }
void NativeEngine::SetExpertObserver(ExpertObserver observer) {
  watchers().experts = std::move(observer);
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
