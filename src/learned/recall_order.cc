// SPDX-License-Identifier: MIT
#include "learned/recall_order.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <tuple>

#include "base/check.h"

namespace moestro {
namespace {

constexpr double kStepsOfADoubling = 16.0;
constexpr double kMostPacked = 255.0;

}  // namespace

uint8_t PackUses(uint32_t uses) {
  if (uses == 0) return 0;
  const double steps = 1.0 + std::round(kStepsOfADoubling * std::log2(uses));
  return static_cast<uint8_t>(std::min(steps, kMostPacked));
}

uint32_t UnpackUses(uint8_t packed) {
  if (packed == 0) return 0;
  return static_cast<uint32_t>(std::round(std::exp2((packed - 1) / kStepsOfADoubling)));
}

std::vector<SlotTable::Used> RecallOrder(const ExpertCatalog& catalog, uint32_t n_expert,
                                         std::span<const uint64_t> slots,
                                         std::span<const uint8_t> packed) {
  CHECK(packed.size() == catalog.layers.size() * n_expert);
  std::vector<std::vector<SlotTable::Used>> of_pool(slots.size());
  for (size_t i = 0; i < packed.size(); ++i) {
    const ExpertKey key{.layer = {static_cast<uint16_t>(i / n_expert)},
                        .expert = {static_cast<uint16_t>(i % n_expert)}};
    if (packed[i] == 0 || catalog.layers[key.layer.value].experts.empty()) continue;
    const uint32_t uses = std::max(UnpackUses(packed[i]) / 2, 1U);
    of_pool[catalog.copy(key).pool].push_back({.key = key, .uses = uses});
  }
  std::vector<SlotTable::Used> order;
  for (size_t p = 0; p < of_pool.size(); ++p) {
    std::vector<SlotTable::Used>& pool = of_pool[p];
    // Sorts by the kept counts, because halves of small counts are equal.
    std::ranges::stable_sort(pool, std::greater{}, [&](const SlotTable::Used& one) {
      return packed[size_t{one.key.layer.value} * n_expert + one.key.expert.value];
    });
    pool.resize(std::min<size_t>(pool.size(), slots[p]));
    order.append_range(pool);
  }
  std::ranges::sort(order, {}, [&](const SlotTable::Used& one) {
    const Extent& first = catalog.copy(one.key).slices[0];
    return std::tuple(first.file, first.offset, one.key.layer.value, one.key.expert.value);
  });
  return order;
}

}  // namespace moestro
