// SPDX-License-Identifier: MIT
// How sure a score is, and whether two scores of the same items differ. Pure.
#pragma once

#include <cstdint>

namespace moestro {

struct Interval {
  double low = 0.0;
  double high = 1.0;
};

// Wilson's interval: the shares that would give `right` of `items` or something more usual in 95 of
// 100 cases. All that is possible for no items. REQUIRES: right <= items.
Interval ShareInterval(uint64_t right, uint64_t items);

// McNemar's test, exact: of items that only one of two runs got right, `gained` by one and `lost`
// by the other, how likely is a split at least as uneven if both runs are equally good. 1 for none.
double McNemar(uint64_t gained, uint64_t lost);

}  // namespace moestro
