// SPDX-License-Identifier: MIT
#include "native/exact_check.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/batch.h"
#include "decide/ahead/predictor.h"
#include "decide/slots/policy.h"

namespace moestro {
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

ExactCheck::ExactCheck(const OpenedModel& opened, DensePart& dense,
                       std::unique_ptr<Residency> residency, std::unique_ptr<Predictor> nothing,
                       std::vector<uint64_t> slots)
    : dense_(dense),
      residency_(std::move(residency)),
      prefetched_(*residency_, nullptr),
      planner_(std::move(nothing), PredictorShape{.moe = opened.model.id.shape},
               PrefetchLimits{.slots = std::move(slots),
                              .pool_of = [&catalog = opened.catalog](
                                             ExpertKey key) { return catalog.copy(key).pool; }},
               [r = residency_.get()](ExpertKey key) { return r->contains(key); }),
      protocol_(planner_, prefetched_, opened.model.spec.n_expert_layers()),
      logits_(opened.model.spec.n_vocab) {}

Result<std::unique_ptr<ExactCheck>> ExactCheck::Create(const OpenedModel& opened, DensePart& dense,
                                                       Team& team, ReadQueue& queue,
                                                       StopSignal& stop) {
  const ModelSpec& spec = opened.model.spec;
  std::vector<uint64_t> slots = CheckSlots(opened.catalog, spec.router.n_used);
  TRY(std::unique_ptr<Residency> residency,
      Residency::Create(opened.catalog, slots, PolicyChoice{.name = "lru"}, queue,
                        opened.options.clock));
  TRY(std::unique_ptr<Predictor> nothing, MakePredictor({.name = "none"}));
  std::unique_ptr<ExactCheck> check(
      new ExactCheck(opened, dense, std::move(residency), std::move(nothing), std::move(slots)));
  TRY(check->experts_, ExpertExec::Create({.team = team,
                                           .residency = *check->residency_,
                                           .catalog = opened.catalog,
                                           .kernels = opened.kernels,
                                           .layers = dense.layers(),
                                           .stop = &stop},
                                          ExpertExec::LimitsFor(opened.kernels, spec.router, 1)));
  check->forward_.emplace(Forward::Parts{.spec = spec,
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
