// SPDX-License-Identifier: MIT
// Counts of inexact choices in a run, for reports.
#pragma once

#include <cstdint>

#include "base/counters.h"

namespace moestro {

// Effects of lossy plans, in experts of a layer and step.
struct LossCounts {
  uint64_t missing = 0;   // the model's own copy was not in memory
  uint64_t low = 0;       // of the missing ones, a low copy ran
  uint64_t skipped = 0;   // left out as unimportant
  uint64_t dropped = 0;   // left out because its weight was small
  uint64_t replaced = 0;  // choices of rows that gave way to resident experts
  uint64_t upgrades = 0;  // own copies read after low ones ran

  bool operator==(const LossCounts&) const = default;

  static constexpr void Visit(auto&& visit) {
    visit(&LossCounts::missing, CounterText{.json = "missing", .sim = "missing"});
    visit(&LossCounts::low, CounterText{.json = "low", .sim = "low"});
    visit(&LossCounts::skipped, CounterText{.json = "skipped", .sim = "skipped"});
    visit(&LossCounts::dropped, CounterText{.json = "dropped", .sim = "dropped"});
    visit(&LossCounts::replaced, CounterText{.json = "replaced", .sim = "replaced"});
    visit(&LossCounts::upgrades, CounterText{.json = "upgrades"});
  }
};
static_assert(CountsAllOf<LossCounts>());

}  // namespace moestro
