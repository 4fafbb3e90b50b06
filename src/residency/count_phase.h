// SPDX-License-Identifier: MIT
// What residency did in a phase of a run, as its statistics say it.
#pragma once

#include "engine/run_stats.h"
#include "residency/residency.h"

namespace moestro {

// `did`: since the phase's last count.
inline void CountResidency(const ResidencyStats& did, PhaseStats& phase) {
  phase.expert_uses += did.requests;
  phase.hits += did.hits;
  phase.misses += did.late + did.misses;
  phase.late += did.late;
  phase.evictions += did.evictions;
  phase.row_uses += did.row_requests;
  phase.row_hits += did.row_hits;
  phase.prefetches += did.prefetches;
  phase.used_prefetches += did.used_prefetches;
  phase.dropped_prefetches += did.dropped_prefetches;
  phase.disk_bytes += did.bytes_read;
  phase.needed_bytes += did.needed_bytes;
}

}  // namespace moestro
