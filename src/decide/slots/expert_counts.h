// SPDX-License-Identifier: MIT
// Counts of requests for experts and of their costs. A slot table counts the requests, its owner
// the reads; a run's report has both.
#pragma once

#include <cstdint>

#include "base/counters.h"
#include "base/share.h"

namespace moestro {

struct ExpertCounts {
  uint64_t requests = 0;  // (layer, expert), once for all rows of a step
  uint64_t hits = 0;      // ready when asked
  uint64_t misses = 0;    // not ready when asked: absent, or still under way
  uint64_t late = 0;      // of the misses, under way
  uint64_t evictions = 0;
  uint64_t row_requests = 0;     // (row, layer, expert)
  uint64_t row_hits = 0;         // row requests whose expert was ready
  uint64_t prefetches = 0;       // absent experts that were fetched before their router chose them
  uint64_t used_prefetches = 0;  // prefetched experts that were requested before they left
  uint64_t dropped_prefetches = 0;  // prefetched experts given up before they were read completely
  double demand_seconds = 0.0;      // while a read was under way that a layer waited for
  uint64_t asked_bytes = 0;         // of experts, each request
  uint64_t needed_bytes = 0;        // bytes of requested experts that had to be read
  uint64_t bytes_read = 0;          // by the disk, padding included

  uint64_t absent() const { return misses - late; }  // when asked
  double hit_rate() const { return Share(hits, requests); }
  double row_hit_rate() const { return Share(row_hits, row_requests); }

  static constexpr void Visit(auto&& visit) {
    using C = ExpertCounts;
    visit(&C::requests, CounterText{.json = "expert_uses", .sim = "requests"});
    visit(&C::hits, CounterText{.sim = "hits",
                                .metric = "expert_hits_total",
                                .meaning = "Experts that were in memory when a layer asked."});
    visit(&C::misses, CounterText{.sim = "misses",
                                  .metric = "expert_misses_total",
                                  .meaning = "Experts that were not."});
    visit(&C::hit_rate, CounterText{.json = "hit_rate", .sim = "hit_rate"});
    visit(&C::row_requests, CounterText{.json = "row_uses"});
    visit(&C::row_hits, CounterText{});
    visit(&C::row_hit_rate, CounterText{.json = "row_hit_rate"});
    visit(&C::evictions, CounterText{.json = "evictions",
                                     .sim = "evictions",
                                     .metric = "expert_evictions_total",
                                     .meaning = "Experts that left memory for others."});
    visit(&C::late, CounterText{.json = "late", .sim = "late"});
    visit(&C::prefetches, CounterText{.json = "prefetches",
                                      .sim = "prefetches",
                                      .metric = "expert_prefetches_total",
                                      .meaning = "Experts that were read before a layer asked."});
    visit(&C::used_prefetches, CounterText{.json = "used_prefetches",
                                           .sim = "used_prefetches",
                                           .metric = "expert_prefetches_used_total",
                                           .meaning = "Of these, experts that a layer asked for."});
    visit(&C::dropped_prefetches, CounterText{.json = "dropped_prefetches"});
    visit(&C::demand_seconds, CounterText{});
    visit(&C::asked_bytes, CounterText{});
    visit(&C::bytes_read, CounterText{.json = "disk_bytes_decode",
                                      .prefill = "disk_bytes_prefill",
                                      .metric = "disk_read_bytes_total",
                                      .meaning = "Bytes of experts that were read from disk."});
    visit(&C::needed_bytes, CounterText{.json = "needed_bytes_decode"});
  }
};
static_assert(CountsAllOf<ExpertCounts>());

}  // namespace moestro
