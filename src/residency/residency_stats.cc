// SPDX-License-Identifier: MIT
#include <cstddef>
#include <cstdint>

#include "residency/residency.h"

namespace moestro {

ResidencyStats ResidencyStats::Since(const ResidencyStats& before) const {
  return {.requests = requests - before.requests,
          .hits = hits - before.hits,
          .late = late - before.late,
          .misses = misses - before.misses,
          .evictions = evictions - before.evictions,
          .row_requests = row_requests - before.row_requests,
          .row_hits = row_hits - before.row_hits,
          .prefetches = prefetches - before.prefetches,
          .used_prefetches = used_prefetches - before.used_prefetches,
          .dropped_prefetches = dropped_prefetches - before.dropped_prefetches,
          .demand_seconds = demand_seconds - before.demand_seconds,
          .asked_bytes = asked_bytes - before.asked_bytes,
          .needed_bytes = needed_bytes - before.needed_bytes,
          .bytes_read = bytes_read - before.bytes_read};
}

ResidencyStats Residency::stats() const {
  ResidencyStats sum;
  for (size_t p = 0; p < pools_.size(); ++p) {
    const TableStats& s = pools_[p].table->stats();
    const bool is_staging = p == staging();
    const uint64_t expert_bytes = is_staging ? 0 : catalog_->pools[p].expert_bytes();
    const uint64_t staged_bytes = is_staging ? staged_bytes_ : 0;
    sum.asked_bytes += s.requests * expert_bytes + staged_bytes;
    sum.needed_bytes += (s.misses + s.used_prefetches) * expert_bytes + staged_bytes;
    sum.requests += s.requests;
    sum.hits += s.hits;
    sum.late += s.late;
    sum.misses += s.misses;
    sum.evictions += s.evictions;
    sum.row_requests += s.row_requests;
    sum.row_hits += s.row_hits;
    sum.prefetches += s.prefetches;
    sum.used_prefetches += s.used_prefetches;
  }
  sum.dropped_prefetches = dropped_prefetches_;
  sum.demand_seconds = demand_seconds_;
  sum.bytes_read = queue_->stats().bytes;
  return sum;
}

}  // namespace moestro
