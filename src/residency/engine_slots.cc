// SPDX-License-Identifier: MIT
#include "residency/engine_slots.h"

#include <utility>

#include "base/check.h"
#include "residency/lease_stream.h"
#include "store/probe.h"

namespace moestro {

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

std::vector<SlotContents> ContentsOf(const Residency& residency, const ExpertCatalog& catalog,
                                     std::span<const uint64_t> slots) {
  std::vector<SlotContents> pools;
  for (uint32_t p = 0; p < slots.size(); ++p) {
    pools.push_back({.slots = slots[p],
                     .expert_bytes = catalog.pools[p].expert_bytes(),
                     .experts = residency.contents(p)});
  }
  return pools;
}

ExpertPlace PlaceOf(const ExpertCatalog& catalog, ExpertKey key) {
  const uint32_t pool = catalog.copy(key).pool;
  return {.pool = pool, .bytes = catalog.pools[pool].expert_bytes()};
}

ResidentModel ResidentModelOf(const ExpertCatalog& catalog, std::span<const uint64_t> slots,
                              const PolicyChoice& policy, const MoeShape& shape) {
  std::vector<SlotTable> tables;
  for (const uint64_t n : slots) {
    Result<std::unique_ptr<Policy>> made = MakePolicy(policy);
    CHECK(made.has_value());
    tables.emplace_back(PolicyShape::Of(n, shape), *std::move(made));
  }
  return {std::move(tables), [own = catalog](ExpertKey key) { return own.copy(key).pool; }};
}

Status ReadAllExperts(Residency& residency, const ExpertCatalog& catalog, const MemoryPlan& memory,
                      const Progress& report) {
  if (memory.n_slots < memory.n_experts) {
    return Fail(Errc::kInvalidRequest, "{} slots do not hold all {} experts; raise --ram",
                memory.n_slots, memory.n_experts);
  }
  const auto n_layers = static_cast<uint16_t>(catalog.layers.size());
  for (uint16_t l = 0; l < n_layers; ++l) {
    std::vector<ExpertKey> keys;
    for (uint16_t e = 0; e < catalog.layers[l].experts.size(); ++e) {
      keys.push_back({.layer = ExpertLayerId{l}, .expert = {e}});
    }
    LeaseStream leases(residency, keys, Urgency::kDemand);
    leases.Advance();
    CHECK(leases.all_taken());
    residency.Drain();
    if (auto error = residency.TakeError()) return std::unexpected(*std::move(error));
    report("loading experts", l + 1U, n_layers);
  }
  return {};
}

Result<double> ProbeExpertReads(Residency& residency, const ExpertCatalog& catalog,
                                BlockReader& reader, const ReadQueueOptions& reads,
                                uint64_t total) {
  // A prefill may leave reads under way that no step waited for; the probe would meet their
  // results.
  residency.Settle();
  const std::vector<Extent> slices = OwnSlices(catalog);
  if (slices.empty()) return 0.0;
  TRY(const BandwidthProbe probe, ProbeBandwidth(reader, slices, {.reads = reads, .total = total}));
  return probe.bytes_per_second;
}

}  // namespace moestro
