// SPDX-License-Identifier: MIT
#include "native/lossy_run.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "core/batch.h"
#include "decide/ahead/predictors.h"
#include "decide/slots/policy.h"
#include "learned/beside_model.h"
#include "learned/learned_tables.h"

namespace moestro {
namespace {

Result<std::shared_ptr<const ExpertNorms>> ReadNorms(const OpenedModel& opened) {
  const std::string& model = opened.model.gguf.paths().front();
  const std::string path = opened.options.norms.empty() ? NormsBeside(model) : opened.options.norms;
  auto read = ReadNormsFor(opened.model.id, path);
  if (!read && read.error().code == Errc::kIo) {
    return Fail(Errc::kIo, "{}; measure them with 'moestro profile {} --text FILE'",
                read.error().message, model);
  }
  return read;
}

}  // namespace

Result<std::unique_ptr<LossyChoices>> LossyChoices::Create(const OpenedModel& opened,
                                                           const ExpertSlots& slots) {
  const bool has_low = opened.catalog.has_low();
  LossyOptions lossy = opened.options.lossy;
  const bool is_exact = lossy.is_exact(has_low);
  if (is_exact) lossy.importance = LossyOptions().importance;  // importance has no effect
  std::shared_ptr<const ExpertNorms> norms;
  if (lossy.importance == "score-norm") {
    TRY(norms, ReadNorms(opened));
  }
  std::unique_ptr<LossyChoices> choices(
      new LossyChoices(LossyChooser(lossy, opened.model.spec.router, has_low, std::move(norms))));
  if (is_exact && opened.little.misses == Misses::kRead) return choices;
  if (lossy.upgrades && has_low) {
    choices->upgrades_.emplace(opened.model.id.shape);
  }
  if (lossy.is_reproducible) choices->present_.emplace(slots.MakeResidentModel());
  return choices;
}

// Refuses rows whose sequence has an earlier row in the step: that row's keys and values may be
// overwritten by the second pass.
bool LittleFirst::Takes(const Batch& batch) const {
  if (batch.little.is_on()) return false;
  std::vector<SequenceId> seen;
  for (const BatchRow& row : batch.rows) {
    if (row.kind != RowKind::kDecode || !row.wants_logits) return false;
    seen.push_back(row.sequence);
  }
  std::ranges::sort(seen);
  return std::ranges::adjacent_find(seen) == seen.end();
}

Status LittleFirst::Compute(const Batch& batch, const StepRunner::LogitsSink& sink) {
  LittleStats& counts = frame_.state().stats.little;
  for (size_t first = 0; first < batch.size(); first += opened_.plan.chunk) {
    const size_t n = std::min<size_t>(opened_.plan.chunk, batch.size() - first);
    const auto begin = batch.rows.begin() + static_cast<std::ptrdiff_t>(first);
    const Batch part{.rows = {begin, begin + static_cast<std::ptrdiff_t>(n)},
                     .little = opened_.little};
    std::vector<size_t> again;  // rows of the part
    const double start = frame_.now();
    TRY_STATUS(runner_.Compute(part, [&](size_t row, std::span<const float> logits) {
      if (!judge_.Keeps(Confidence(logits))) {
        again.push_back(row);
      } else if (sink) {
        sink(first + row, logits);
      }
    }));
    counts.little_seconds += frame_.now() - start;
    counts.tokens += n;
    ++counts.steps;
    if (again.empty()) continue;
    TRY_STATUS(ComputeAgain(part, again, [&](size_t row, std::span<const float> logits) {
      if (sink) sink(first + row, logits);
    }));
  }
  return {};
}

Status LittleFirst::ComputeAgain(const Batch& batch, std::span<const size_t> rows,
                                 const StepRunner::LogitsSink& sink) {
  Batch big;
  for (const size_t row : rows) big.rows.push_back(batch.rows[row]);
  const size_t k = opened_.model.spec.router.n_used;
  for (const std::vector<ExpertId>& of_layer : forward_.widened()) {
    std::vector<ExpertId>& in_layer = big.foreseen.emplace_back();
    for (const size_t row : rows) {
      in_layer.append_range(std::span(of_layer).subspan(row * k, k));
    }
  }
  const PrefetchPlanner& planner = frame_.decisions().planner();
  const ExpertCounts before = frame_.residency().stats();
  const PredictionScore score = planner.foreseen_score();
  const double start = frame_.now();
  TRY_STATUS(runner_.Compute(
      big, [&](size_t i, std::span<const float> logits) { sink(rows[i], logits); }));
  const ExpertCounts did = frame_.residency().stats() - before;
  LittleStats& counts = frame_.state().stats.little;
  counts.again_seconds += frame_.now() - start;
  counts.again += rows.size();
  ++counts.steps_again;
  counts.foreseen += planner.foreseen_score() - score;
  counts.prefetches += did.prefetches;
  counts.used_prefetches += did.used_prefetches;
  return {};
}

namespace {

// Slots by pool: a row's experts in one layer; none for low copies.
std::vector<uint64_t> CheckSlots(const ExpertCatalog& catalog, uint32_t n_used) {
  std::vector<uint64_t> slots;
  for (const PoolShape& pool : catalog.pools) {
    slots.push_back(pool.is_low ? 0 : std::min<uint64_t>(n_used, pool.experts));
  }
  return slots;
}

}  // namespace

uint64_t ExactCheck::BytesFor(const ModelSpec& spec, const ExpertCatalog& catalog,
                              std::span<const FormKernels> kernels, uint64_t block) {
  const std::vector<uint64_t> slots = CheckSlots(catalog, spec.router.n_used);
  uint64_t bytes = ExpertExec::BytesFor(ExpertExec::LimitsFor(kernels, spec.router, 1)) +
                   uint64_t{spec.n_vocab} * sizeof(float);
  for (size_t p = 0; p < slots.size(); ++p) bytes += slots[p] * catalog.pools[p].slot_bytes(block);
  return bytes;
}

ExactCheck::ExactCheck(const OpenedModel& opened, DenseModel& dense,
                       std::unique_ptr<ReadQueue> queue, std::unique_ptr<Residency> residency,
                       std::unique_ptr<Predictor> nothing, std::vector<uint64_t> slots)
    : dense_(dense),
      queue_(std::move(queue)),
      residency_(std::move(residency)),
      prefetched_(*residency_, nullptr),
      planner_(std::move(nothing), PredictorShape{.moe = opened.model.id.shape},
               PrefetchLimits{.slots = std::move(slots),
                              .pool_of = [&catalog = opened.catalog](
                                             ExpertKey key) { return catalog.copy(key).pool; }},
               [r = residency_.get()](ExpertKey key) { return r->contains(key); }),
      protocol_(planner_, prefetched_, opened.model.spec.n_expert_layers()),
      logits_(opened.model.spec.n_vocab) {}

Result<std::unique_ptr<ExactCheck>> ExactCheck::Create(const OpenedModel& opened, DenseModel& dense,
                                                       Team& team, const ReadQueueOptions& reads,
                                                       StopSignal& stop) {
  const ModelSpec& spec = opened.model.spec;
  std::vector<uint64_t> slots = CheckSlots(opened.catalog, spec.router.n_used);
  auto queue = std::make_unique<ReadQueue>(*opened.reader, opened.paths(), reads);
  TRY(std::unique_ptr<Residency> residency,
      Residency::Create(opened.catalog, slots, PolicyChoice{.name = "lru"}, *queue,
                        opened.options.clock));
  TRY(std::unique_ptr<Predictor> nothing, MakePredictor({.name = "none"}));
  std::unique_ptr<ExactCheck> check(new ExactCheck(
      opened, dense, std::move(queue), std::move(residency), std::move(nothing), std::move(slots)));
  TRY(check->experts_, ExpertExec::Create({.team = team,
                                           .residency = *check->residency_,
                                           .catalog = opened.catalog,
                                           .kernels = opened.kernels,
                                           .layers = dense.layers(),
                                           .stop = &stop},
                                          ExpertExec::LimitsFor(opened.kernels, spec.router, 1)));
  check->forward_.emplace(ForwardParts{.spec = spec,
                                       .graph = dense.graph(),
                                       .buffers = dense.buffers(),
                                       .residency = *check->residency_,
                                       .protocol = check->protocol_,
                                       .planner = check->planner_,
                                       .experts = *check->experts_,
                                       .team = team,
                                       .layers = dense.layers(),
                                       .clock = opened.options.clock,
                                       .stop = stop,
                                       .watchers = check->nothing_watches_});
  return check;
}

Result<std::span<const float>> ExactCheck::Evaluate(const StepRow& row) {
  constexpr std::array kKinds = {RowKind::kDecode};
  const LittleStep all_experts;
  Result<Forward::Pass> pass = forward_->Begin({&row, 1}, kKinds, all_experts, {});
  const Status status = pass ? forward_->Finish(*pass) : std::unexpected(pass.error());
  // The engine's own reads must find no prefetch, read or error of the check.
  protocol_.Clear();
  residency_->Abandon();
  residency_->Settle();
  TRY_STATUS(status);
  TRY_STATUS(dense_.graph().Head(0, 1));
  std::copy_n(dense_.buffers().logits(), logits_.size(), logits_.begin());
  return std::span<const float>(logits_);
}

}  // namespace moestro
