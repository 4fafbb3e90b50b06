// SPDX-License-Identifier: MIT
#include "kit/expert_slots.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/result.h"
#include "compute/rate_probe.h"
#include "learned/kept_facts.h"
#include "residency/leases.h"
#include "store/probe.h"

namespace moestro {
namespace {

// Parts of memory that become resident one after the other.
constexpr size_t kPopulateSteps = 32;

}  // namespace

std::vector<Extent> OwnSlices(const ExpertCatalog& catalog) {
  std::vector<Extent> all;
  for (const ExpertCatalog::Layer& layer : catalog.layers) {
    for (const std::vector<ExpertCopy>& copies : layer.experts) {
      for (const Extent& slice : copies.front().slices) {
        if (slice.length > 0) all.push_back(slice);
      }
    }
  }
  return all;
}

ExpertPools PoolsOfOwnCopies(const ExpertCatalog& catalog, std::span<const uint64_t> slots,
                             uint32_t n_expert) {
  ExpertPools pools;
  for (size_t p = 0; p < catalog.pools.size(); ++p) {
    const PoolShape& pool = catalog.pools[p];
    if (pool.is_low) continue;  // pools of low copies are behind all others
    pools.pools.push_back({.matrix_bytes = pool.slice_bytes, .slots = slots[p]});
  }
  if (pools.pools.size() < 2) return pools;
  for (const ExpertCatalog::Layer& layer : catalog.layers) {
    for (uint32_t e = 0; e < n_expert; ++e) {
      const size_t known = std::min<size_t>(e, layer.experts.size() - 1);
      pools.pool_of.push_back(static_cast<uint16_t>(layer.experts[known].front().pool));
    }
  }
  return pools;
}

Result<std::unique_ptr<ExpertSlots>> ExpertSlots::Create(Model model, PlannedMemory planned,
                                                         const PolicySource& policies,
                                                         const ReadQueueOptions& reads) {
  std::unique_ptr<ExpertSlots> made(new ExpertSlots(std::move(model), std::move(planned)));
  made->queue_ = std::make_unique<ReadQueue>(made->model_.reader, made->model_.paths, reads);
  const uint64_t n = made->memory().n_slots;
  if (n > 0) {
    TRY(made->policy_, policies.Choose(made->model_.id, n));
  }
  return made;
}

Status ExpertSlots::Allocate(const HostMemorySource& memory, uint64_t staging) {
  TRY(std::unique_ptr<Residency> made, Residency::Create(model_.catalog, planned_.slots, policy_,
                                                         *queue_, model_.options.clock, memory));
  if (staging > 0) TRY_STATUS(made->AllocateStaging(staging, memory));
  residency_ = std::move(made);
  return {};
}

void ExpertSlots::AddTo(EngineFacts& facts) const {
  facts.memory = memory();
  facts.policy = policy_;
  facts.pools = PoolsOfOwnCopies(model_.catalog, slots(), shape().n_expert);
  facts.io_depth = io_depth();
}

std::vector<SlotContents> ExpertSlots::contents() const {
  std::vector<SlotContents> pools;
  for (uint32_t p = 0; p < planned_.slots.size(); ++p) {
    pools.push_back({.slots = planned_.slots[p],
                     .expert_bytes = model_.catalog.pools[p].expert_bytes(),
                     .experts = residency_->contents(p)});
  }
  return pools;
}

ExpertLocation ExpertSlots::place_of(ExpertKey key) const {
  const uint32_t pool = model_.catalog.copy(key).pool;
  return {.pool = pool, .bytes = model_.catalog.pools[pool].expert_bytes()};
}

// The model has a catalog of its own, since a caller may keep the model while a restart replaces
// the engine's.
ResidentModel ExpertSlots::MakeResidentModel() const {
  std::vector<SlotTable> tables;
  MoeShape all = shape();
  all.n_layer = static_cast<uint32_t>(model_.catalog.layers.size());
  for (size_t p = 0; p < planned_.slots.size(); ++p) {
    Result<std::unique_ptr<Policy>> made = MakePolicy(policy_);
    CHECK(made.has_value());
    tables.emplace_back(PolicyShape::Of(planned_.slots[p], all, model_.catalog.pools[p].experts),
                        *std::move(made));
  }
  return {std::move(tables), [own = model_.catalog](ExpertKey key) { return own.copy(key).pool; }};
}

// Reads the model's own copy of every expert into its slot, layer by layer.
Status ExpertSlots::Preload(const Progress& report) {
  if (!holds_all()) {
    return Fail(Errc::kInvalidRequest, "{} slots do not hold all {} experts; raise --ram",
                memory().n_slots, memory().n_experts);
  }
  const auto n_layers = static_cast<uint16_t>(model_.catalog.layers.size());
  for (uint16_t l = 0; l < n_layers; ++l) {
    std::vector<ExpertKey> keys;
    for (uint16_t e = 0; e < model_.catalog.layers[l].experts.size(); ++e) {
      keys.push_back({.layer = ExpertLayerId{l}, .expert = {e}});
    }
    LeaseStream leases(*residency_, keys, Urgency::kDemand);
    leases.Advance();
    CHECK(leases.all_taken());
    residency_->Drain();
    if (auto error = residency_->TakeError()) return std::unexpected(*std::move(error));
    report("loading experts", l + 1U, n_layers);
  }
  return {};
}

bool ExpertSlots::WorkWhileIdle() {
  if (!residency_->is_recalling()) return false;
  residency_->RecallAhead(model_.options.recall.bytes_at_a_time);
  residency_->WaitBriefly();
  return true;
}

uint64_t ExpertSlots::Recall() {
  uses_before_ = KeptUses(model_.options.recall.folder, model_.id);
  if (uses_before_.empty()) return 0;
  std::vector<SlotTable::Used> order =
      RecallOrder(model_.catalog, shape().n_expert, slots(), uses_before_);
  const uint64_t n = order.size();
  residency_->Recall(std::move(order));
  return n;
}

void ExpertSlots::KeepUses() const {
  if (residency_->stats().requests == 0) return;
  moestro::KeepUses(model_.options.recall.folder, model_.id, UsesNow());
}

// Packs the uses of experts in slots. Other experts keep half of the uses from earlier runs.
std::vector<uint8_t> ExpertSlots::UsesNow() const {
  std::vector<uint8_t> packed = uses_before_;
  for (uint8_t& uses : packed) uses = PackUses(UnpackUses(uses) / 2);
  packed.resize(size_t{shape().n_layer} * shape().n_expert);
  for (uint32_t p = 0; p < planned_.slots.size(); ++p) {
    for (const SlotTable::Used& one : residency_->used(p)) {
      if (one.key.copy > 0 || one.key.layer.value >= shape().n_layer) continue;
      packed[size_t{one.key.layer.value} * shape().n_expert + one.key.expert.value] =
          PackUses(one.uses);
    }
  }
  return packed;
}

// Makes slots resident in steps, so that a progress bar moves: each thread of the team takes its
// part of every step.
Status ExpertSlots::Populate(Team& team, const Progress& report) const {
  for (size_t step = 0; step < kPopulateSteps; ++step) {
    report("reserving memory", step, kPopulateSteps);
    residency_->RecallAhead(model_.options.recall.bytes_at_a_time);
    TRY_STATUS(team.Run([&](int thread, int n_threads) {
      const auto part = step * static_cast<size_t>(n_threads) + static_cast<size_t>(thread);
      residency_->Populate(part, kPopulateSteps * static_cast<size_t>(n_threads));
    }));
  }
  residency_->Drain();
  residency_->RegisterMemory();
  return {};
}

Result<double> ExpertSlots::ProbeReads(uint64_t total) {
  // A prefill may leave reads under way that no step waited for; the probe would meet their
  // results.
  residency_->Settle();
  const std::vector<Extent> slices = OwnSlices(model_.catalog);
  if (slices.empty()) return 0.0;
  TRY(const BandwidthProbe probe,
      ProbeBandwidth(model_.reader, slices, {.reads = queue_->options(), .total = total}));
  return probe.bytes_per_second;
}

Result<double> ExpertSlots::ProbeMemory(Team& team) {
  residency_->Settle();  // the probe needs slots that no read writes to
  return ProbeReadBandwidth(team, residency_->memory());
}

Result<std::unique_ptr<ReadsBeside>> ExpertSlots::ReadBeside() {
  residency_->Settle();
  TRY(const ReaderKind kind, ParseReaderKind(model_.options.reader));
  return std::make_unique<ReadsBeside>(
      [kind, paths = model_.paths] { return OpenReader({.kind = kind}, paths); },
      OwnSlices(model_.catalog), queue_->options());
}

}  // namespace moestro
