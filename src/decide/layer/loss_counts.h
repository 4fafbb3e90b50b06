// SPDX-License-Identifier: MIT
// What was not exact in a run, for reports.
#pragma once

#include <cstdint>

namespace moestro {

// What lossy plans did, in experts of a layer and step.
struct LossCounts {
  uint64_t missing = 0;   // the model's own copy was not in memory
  uint64_t low = 0;       // of these, a low copy ran
  uint64_t skipped = 0;   // left out as unimportant
  uint64_t dropped = 0;   // left out because it weighed so little
  uint64_t replaced = 0;  // choices of rows that gave way to resident experts
  uint64_t upgrades = 0;  // own copies read after low ones ran

  bool operator==(const LossCounts&) const = default;
  LossCounts& operator+=(const LossCounts& more) {
    missing += more.missing;
    low += more.low;
    skipped += more.skipped;
    dropped += more.dropped;
    replaced += more.replaced;
    upgrades += more.upgrades;
    return *this;
  }
  LossCounts Since(const LossCounts& before) const {
    return {.missing = missing - before.missing,
            .low = low - before.low,
            .skipped = skipped - before.skipped,
            .dropped = dropped - before.dropped,
            .replaced = replaced - before.replaced,
            .upgrades = upgrades - before.upgrades};
  }
};

}  // namespace moestro
