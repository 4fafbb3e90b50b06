// SPDX-License-Identifier: MIT
#include "kit/slot_engine.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "base/terminal.h"
#include "store/probe.h"

namespace moestro {
namespace {

double MeanOwnBytes(const ExpertCatalog& catalog) {
  uint64_t experts = 0;
  for (const PoolShape& pool : catalog.pools) experts += pool.is_low ? 0 : pool.experts;
  return experts > 0 ? static_cast<double>(catalog.total_bytes()) / static_cast<double>(experts)
                     : 0.0;
}

}  // namespace

Result<std::unique_ptr<LayerDecisions>> LayerDecisions::Create(const PredictorChoice& predictor,
                                                               ExpertSlots& slots,
                                                               const Rules& rules) {
  TRY(std::unique_ptr<Predictor> predicts, MakePredictor(predictor));
  std::unique_ptr<LayerDecisions> made(new LayerDecisions(slots.residency(), rules));
  const ExpertCatalog& catalog = slots.catalog();
  made->planner_.emplace(
      std::move(predicts),
      PredictorShape{.moe = slots.shape(), .depth = std::max(rules.look_ahead, 1U)},
      PrefetchLimits{.slots = {slots.slots().begin(), slots.slots().end()},
                     .pool_of = [&catalog](ExpertKey key) { return catalog.copy(key).pool; },
                     .reads_at_device = slots.queue().options().max_speculative,
                     .expert_bytes = MeanOwnBytes(catalog),
                     .is_fixed = rules.is_fixed},
      [&its = made->prefetched_](ExpertKey key) { return its.contains(key); });
  made->protocol_.emplace(*made->planner_, made->prefetched_, slots.shape().n_layer, rules.lossy);
  return made;
}

std::span<const PredictionScore> LayerDecisions::scores() const {
  if (rules_.look_ahead == 0) return {};
  return planner_->scores();
}

void LayerDecisions::BeginSequence() {
  residency_.BeginSequence();
  if (rules_.tier != nullptr) rules_.tier->BeginSequence();
  protocol_->BeginSequence();
}

StepFrame::StepFrame(Residency& residency, LayerDecisions& decisions, FileWatch& watch,
                     EngineState& state, Clocks clocks)
    : residency_(residency),
      decisions_(decisions),
      watch_(watch),
      state_(state),
      clocks_(std::move(clocks)) {}

StepFrame::Phase::Phase(StepFrame& frame, PhaseStats& phase)
    : frame_(frame), begun_(frame.Begin(phase)) {}

StepFrame::Phase::~Phase() { frame_.Count(begun_); }

Status StepFrame::Phase::End(Status done) const {
  if (done) return done;
  frame_.decisions_.protocol().Clear();
  frame_.residency_.Abandon();
  if (done.error().code == Errc::kInterrupted) frame_.state_.stop.Take();
  return done;
}

StepFrame::Phase::Begun StepFrame::Begin(PhaseStats& phase) const {
  return {.phase = &phase,
          .residency = residency_.stats(),
          .lost = decisions_.protocol().losses(),
          .table = clocks_.table ? clocks_.table() : TableCounts(),
          .dense_bytes = dense_bytes_,
          .waited = clocks_.waited(),
          .serial = clocks_.serial ? clocks_.serial() : std::pair(0.0, uint64_t{0}),
          .start = std::chrono::steady_clock::now()};
}

void StepFrame::Count(const Phase::Begun& begun) const {
  PhaseStats& phase = *begun.phase;
  const Phase::Begun now = Begin(phase);
  const ExpertCounts did = now.residency - begun.residency;
  ExpertCounts& of_experts = phase;
  of_experts += did;
  const std::chrono::duration<double> took = now.start - begun.start;
  phase.seconds += took.count();
  phase.wait_seconds += now.waited - begun.waited;
  phase.serial_seconds += now.serial.first - begun.serial.first;
  phase.serial_steps += now.serial.second - begun.serial.second;
  phase.touched_bytes += did.asked_bytes + now.dense_bytes - begun.dense_bytes;
  phase.losses += now.lost - begun.lost;
  phase.table += now.table - begun.table;
}

StepFrame::StepBegin StepFrame::BeginStep(const LittleStep& little) {
  const StepBegin begin{.experts = residency_.stats(),
                        .dense_bytes = dense_bytes_,
                        .waited = clocks_.waited(),
                        .start = clocks_.now()};
  decisions_.protocol().BeginStep(little);
  return begin;
}

void StepFrame::Logged::Note(bool is_low_now, double share, std::string_view what,
                             uint64_t& falls) {
  if (is_low_now == is_low) return;
  is_low = is_low_now;
  if (!is_low) return LogInfo("{} as fast as before again", what);
  ++falls;
  LogWarning("{} {:.2f} times as fast as before; hot, or in use by others? ('moestro doctor')",
             what, share);
}

// Computing is watched while the same texts go on: with other texts, or other numbers of them, a
// weight takes another time. The disk is slow only if both reads on demand and all reads are slower
// than before: more prefetches slow the former, and fewer of them make the latter fewer.
void StepFrame::WatchRates(const StepBegin& begin, const ExpertCounts& did,
                           std::span<const BatchRow> rows) {
  uint64_t positions = 0;
  for (const BatchRow& row : rows) positions += row.position;
  const bool go_on = rows.size() == watched_rows_ && positions == next_positions_;
  watched_rows_ = rows.size();
  next_positions_ = positions + rows.size();
  if (!go_on) {
    compute_watch_.Restart();
    compute_ = {};
  }
  const double seconds = clocks_.now() - begin.start - (clocks_.waited() - begin.waited);
  const uint64_t bytes = did.asked_bytes + dense_bytes_ - begin.dense_bytes;
  compute_watch_.Observe(static_cast<double>(bytes), seconds);
  if (did.misses > 0) {
    demand_watch_.Observe(static_cast<double>(did.misses), did.demand_seconds);
    reads_watch_.Observe(static_cast<double>(did.misses + did.prefetches), did.demand_seconds);
  }
  SlowedStats& slowed = state_.stats.slowed;
  disk_.Note(demand_watch_.is_low() && reads_watch_.is_low(), reads_watch_.share(),
             "the disk reads experts", slowed.disk);
  compute_.Note(compute_watch_.is_low(), compute_watch_.share(), "the processor computes",
                slowed.compute);
}

void StepFrame::StepDone(const StepBegin& begin, std::span<const BatchRow> rows,
                         double look_ahead_seconds, double dense_seconds) {
  const ExpertCounts did = residency_.stats() - begin.experts;
  WatchRates(begin, did, rows);
  decisions_.planner().StepDone({.seconds = clocks_.now() - begin.start,
                                 .demand_seconds = did.demand_seconds,
                                 .demand_reads = did.misses,
                                 .look_ahead_seconds = look_ahead_seconds,
                                 .dense_seconds = dense_seconds});
}

Status StepFrame::LookAtFiles() {
  Status looked = watch_.LookNowAndThen();
  if (!looked) state_.closed = looked.error();
  return looked;
}

namespace {

// Steps that a measurement repeats.
constexpr int kRepeats = 4;
constexpr double kSecondsOfAMean = 0.25;
// Bounds a mean where steps miss experts, or take no time by the clock.
constexpr int kMostRepeats = 4096;

Status CheckRows(const Batch& batch, const EngineFacts& facts, const SequenceTable& sequences) {
  if (batch.rows.empty()) return Fail(Errc::kInvalidRequest, "there are no tokens to evaluate");
  std::map<SequenceId, uint32_t> lengths;  // with the rows checked so far
  for (const BatchRow& row : batch.rows) {
    const Timeline* const timeline = sequences.Find(row.sequence);
    if (timeline == nullptr) {
      return Fail(Errc::kInvalidRequest, "there is no sequence {}", row.sequence.value);
    }
    const auto before = static_cast<uint32_t>(timeline->tokens.size());
    const auto length = lengths.try_emplace(row.sequence, before).first;
    if (row.position != length->second) {
      return Fail(Errc::kInvalidRequest, "position {} does not follow a sequence of {} tokens",
                  row.position, length->second);
    }
    if (++length->second > facts.n_ctx) {
      return Fail(
          Errc::kInvalidRequest,
          "{} tokens after {} do not fit a context of {}; raise --ctx (this model allows {})",
          std::ranges::count(batch.rows, row.sequence, &BatchRow::sequence), before, facts.n_ctx,
          facts.n_ctx_train);
    }
    if (row.token < 0 || static_cast<uint32_t>(row.token) >= facts.n_vocab) {
      return Fail(Errc::kInvalidRequest, "token {} is outside the vocabulary (0 to {})", row.token,
                  facts.n_vocab - 1);
    }
  }
  return {};
}

}  // namespace

Sequence SlotEngine::NewSequence() { return {sequences(), sequences().New()}; }

Result<EngineKit*> SlotEngine::Kit() const {
  if (EngineKit* const parts = kit()) return parts;
  CHECK(state_.closed.has_value());
  return std::unexpected(*state_.closed);
}

Status SlotEngine::Check(const Batch& batch) const {
  TRY_STATUS(CheckRows(batch, facts(), sequences().table()));
  return CheckMore(batch);
}

void SlotEngine::BeginTexts() {
  if (!sequences().table().any_lives()) kit()->decisions.BeginSequence();
}

// Checks the rows and gives them room.
Status SlotEngine::Admit(const Batch& batch) {
  if (state_.closed) return std::unexpected(*state_.closed);
  TRY_STATUS(Check(batch));
  BeginTexts();
  return sequences().Append(batch);
}

SlotEngine::StepCount SlotEngine::BeginCount(const Batch& batch) {
  PhaseStats& phase = batch.has_decode_rows() ? state_.stats.decode : state_.stats.prefill;
  return {.phase = phase, .before = phase};
}

// Counts the tokens of a step that was computed.
void SlotEngine::EndCount(const Batch& batch, const StepCount& count) {
  if (batch.little.is_on()) return;  // a little pass adds no tokens
  PhaseStats& phase = count.phase;
  phase.tokens += batch.size();
  if (!batch.has_decode_rows()) return;
  RunStats& stats = state_.stats;
  stats.decode_ms.Add((phase.seconds - count.before.seconds) * 1e3);
  stats.decode_bytes.Add(static_cast<double>(phase.needed_bytes - count.before.needed_bytes));
}

Status SlotEngine::Step(const Batch& batch, const LogitsSink& sink) {
  TRY_STATUS(Admit(batch));
  StepCount count = BeginCount(batch);
  if (const Status made = MakeWay(batch.size()); !made) {
    sequences().Undo(batch);
    return made;
  }
  TRY_STATUS(ComputeStep(batch, count, sink));
  EndCount(batch, count);
  return {};
}

// A step between its pieces, which is the engine's `run_` then.
class SlotEngine::Run final : public StepRun {
 public:
  Run(SlotEngine& engine, Batch batch, LogitsSink sink)
      : engine_(engine), batch_(std::move(batch)), logits_(std::move(sink)) {
    pieces_ = engine_.PiecesOf(batch_, logits_.sink());
    engine_.run_ = this;
  }
  ~Run() override {
    if (has_ended_) return;
    pieces_.reset();
    if (EngineKit* const parts = engine_.kit()) {
      PhaseStats not_counted;
      const StepFrame::Phase phase(parts->frame, not_counted);
      [[maybe_unused]] const Status dropped = phase.End(Fail(Errc::kInterrupted, "dropped"));
    }
    Leave(false);
  }

  Result<bool> Advance() override {
    CHECK(!has_ended_);
    StepCount count = engine_.BeginCount(batch_);
    if (pieces_ == nullptr) return AdvanceAll(count);
    Status done;
    {
      const StepFrame::Phase counted(engine_.kit()->frame, count.phase);
      const Result<bool> advanced = AdvancePiece();
      if (advanced && !*advanced) return false;
      pieces_.reset();  // lets go of experts
      done = counted.End(advanced ? Status() : std::unexpected(advanced.error()));
    }
    Leave(done.has_value());
    TRY_STATUS(engine_.EndPieces(std::move(done), batch_, count.phase, logits_));
    engine_.EndCount(batch_, count);
    return true;
  }
  Status MakeWay(size_t n_rows) { return pieces_ != nullptr ? pieces_->MakeWay(n_rows) : Status(); }

 private:
  Result<bool> AdvancePiece() {
    if (engine_.state_.closed) return std::unexpected(*engine_.state_.closed);  // by another step
    return pieces_->Advance();
  }
  Result<bool> AdvanceAll(StepCount& count) {
    has_ended_ = true;
    engine_.run_ = nullptr;
    TRY_STATUS(engine_.ComputeStep(batch_, count, logits_.sink()));
    engine_.EndCount(batch_, count);
    return true;
  }
  void Leave(bool is_computed) {
    has_ended_ = true;
    engine_.run_ = nullptr;
    if (is_computed) {
      engine_.sequences().Commit(batch_);
    } else {
      engine_.sequences().Undo(batch_);  // the content of the rows' cells is undefined
    }
  }

  SlotEngine& engine_;
  const Batch batch_;
  LogitsOnce logits_;
  std::unique_ptr<StepPieces> pieces_;  // null: the step is one piece
  bool has_ended_ = false;
};

Status SlotEngine::MakeWay(size_t n_rows) {
  return run_ != nullptr ? run_->MakeWay(n_rows) : Status();
}

Result<std::unique_ptr<StepRun>> SlotEngine::Begin(Batch batch, LogitsSink sink) {
  if (run_ != nullptr) return Fail(Errc::kInvalidRequest, "another step is between its pieces");
  TRY_STATUS(Admit(batch));
  return std::make_unique<Run>(*this, std::move(batch), std::move(sink));
}

Status SlotEngine::ComputeCounted(const Batch& batch, PhaseStats& phase, const LogitsSink& sink) {
  Status done;
  {
    const StepFrame::Phase counted(kit()->frame, phase);
    done = counted.End(Compute(batch, sink));
  }
  if (done) {
    sequences().Commit(batch);
  } else {
    sequences().Undo(batch);  // the content of the rows' cells is undefined
  }
  return done;
}

Status SlotEngine::Preload() {
  TRY(EngineKit* const parts, Kit());
  return parts->slots.Preload(state_.report);
}

bool SlotEngine::WorkWhileIdle() {
  EngineKit* const parts = kit();
  return parts != nullptr && parts->slots.WorkWhileIdle();
}

EngineLearned SlotEngine::learned() const {
  const EngineKit* const parts = kit();
  if (parts == nullptr) return {};
  return {.predictions = parts->decisions.scores()};
}

std::vector<SlotContents> SlotEngine::slot_contents() const {
  const EngineKit* const parts = kit();
  return parts != nullptr ? parts->slots.contents() : std::vector<SlotContents>();
}

ExpertLocation SlotEngine::place_of(ExpertKey key) const {
  const EngineKit* const parts = kit();
  return parts != nullptr ? parts->slots.place_of(key) : ExpertLocation();
}

ResidentModel SlotEngine::MakeResidentModel() const {
  const EngineKit* const parts = kit();
  CHECK(parts != nullptr);
  return parts->slots.MakeResidentModel();
}

void SlotEngine::SetRequestObserver(const SlotTable::Observer& observer) {
  state_.request_observer = observer;
  if (EngineKit* const parts = kit()) parts->slots.residency().SetObserver(observer);
}

void SlotEngine::FinishReads() {
  if (EngineKit* const parts = kit()) parts->slots.residency().Drain();
}

Result<double> SlotEngine::ProbeDiskBandwidth() {
  TRY(EngineKit* const parts, Kit());
  return parts->slots.ProbeReads(ProbeOptions().total);
}

Result<double> SlotEngine::ProbeMemoryBandwidth() {
  TRY(EngineKit* const parts, Kit());
  return parts->slots.ProbeMemory(parts->team);
}

Batch SlotEngine::LastRows(std::span<const Sequence* const> sequences) const {
  Batch again;
  for (const Sequence* const sequence : sequences) {
    if (sequence->position() == 0) return {};
    again.rows.push_back({.sequence = sequence->id(),
                          .position = sequence->position() - 1,
                          .token = sequence->tokens().back()});
  }
  return CanRepeat(again) ? again : Batch();
}

bool SlotEngine::CanRepeat(const Batch& last) const {
  return std::ranges::all_of(last.rows, [this](const BatchRow& row) {
    return sequences().Reach(row.sequence, row.position) == row.position;
  });
}

Status SlotEngine::Repeat(const Batch& last, PhaseStats& phase) {
  sequences().Undo(last);
  TRY_STATUS(sequences().Append(last));
  return ComputeCounted(last, phase, {});
}

// Seconds of a step with these rows: the fastest of a few steps, or the mean of those of a quarter
// of a second and more. nullopt: an expert was missing in every step.
Result<std::optional<double>> SlotEngine::TimeSteps(const Batch& again, bool takes_mean) {
  std::optional<double> best;
  double sum = 0.0;
  int counted = 0;
  for (int done = 0; done < kRepeats ||
                     (takes_mean && counted > 0 && sum < kSecondsOfAMean && done < kMostRepeats);) {
    PhaseStats once;
    Status status = Repeat(again, once);
    if (!status && status.error().code == Errc::kInterrupted) {
      // A stop request that came too late for earlier tokens ends one try, and is no reason to
      // fail.
      TRY_STATUS(sequences().Append(again));
      continue;
    }
    TRY_STATUS(std::move(status));
    ++done;
    if (once.misses > 0) continue;
    best = std::min(best.value_or(once.seconds), once.seconds);
    sum += once.seconds;
    ++counted;
  }
  return takes_mean && counted > 0 ? sum / counted : best;
}

// As TimeSteps(). With a first pass, the second one is added in its measured share.
Result<std::optional<double>> SlotEngine::TimePasses(Batch again, bool takes_mean) {
  std::optional<double> few = 0.0;
  double share = 1.0;  // share of steps that need a pass with all experts
  if (first_pass().is_on()) {
    again.little = first_pass();
    TRY(few, TimeSteps(again, takes_mean));
    again.little = {};
    share = state_.stats.little.fallback_share();
  }
  TRY(const std::optional<double> big, TimeSteps(again, takes_mean));
  if (!few || !big) return std::optional<double>();
  return *few + share * *big;
}

Result<std::optional<double>> SlotEngine::ProbeComputeSeconds(
    std::span<Sequence* const> sequences) {
  TRY_STATUS(Kit());
  const Batch again = LastRows(sequences);
  if (again.rows.empty()) return std::optional<double>();
  return TimePasses(again, false);
}

Result<std::optional<Engine::Together>> SlotEngine::ProbeTogether(
    std::span<Sequence* const> sequences) {
  TRY(EngineKit* const parts, Kit());
  const Batch again = LastRows(sequences);
  const bool reads = parts->slots.memory().n_experts > 0;
  if (again.rows.empty() || !computes_alone() || !reads) return std::optional<Together>();
  TRY(const std::unique_ptr<ReadsBeside> beside, parts->slots.ReadBeside());
  const Result<std::optional<double>> step = TimePasses(again, true);
  TRY(const double bandwidth, beside->Stop());
  if (!step) return std::unexpected(step.error());
  if (!*step) return std::optional<Together>();
  return std::optional(Together{.compute_seconds = **step, .disk_bandwidth = bandwidth});
}

}  // namespace moestro
