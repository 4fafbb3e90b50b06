// SPDX-License-Identifier: MIT
#include "kit/step_frame.h"

#include <algorithm>
#include <cstdint>
#include <utility>

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
}

StepFrame::StepBegin StepFrame::BeginStep(const LittleStep& little) {
  const StepBegin begin{.experts = residency_.stats(), .start = clocks_.now()};
  decisions_.protocol().BeginStep(little);
  return begin;
}

void StepFrame::StepDone(const StepBegin& begin, double look_ahead_seconds, double dense_seconds) {
  const ExpertCounts did = residency_.stats() - begin.experts;
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

}  // namespace moestro
