// SPDX-License-Identifier: MIT
// Confidence of a score, and a test whether two scores of the same items differ. Pure.
#pragma once

#include <cstdint>

namespace moestro {

struct Interval {
  double low = 0.0;
  double high = 1.0;
};

// Wilson's interval: the shares that would give `right` of `items` or something more usual in 95 of
// 100 cases. 0 to 1 for no items. REQUIRES: right <= items.
Interval ShareInterval(uint64_t right, uint64_t items);

// McNemar's test, exact: probability of a split at least as uneven if both runs are equally good,
// of items that only one of two runs got right, `gained` by one and `lost` by the other. 1 for no
// such items.
double McNemar(uint64_t gained, uint64_t lost);

}  // namespace moestro
