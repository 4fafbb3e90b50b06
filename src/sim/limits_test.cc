// SPDX-License-Identifier: MIT
#include "sim/limits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <random>
#include <vector>

namespace moestro {
namespace {

using Layers = std::vector<std::vector<uint32_t>>;

RequestLog LogOf(const Layers& layers) {
  size_t requests = 0;
  for (const auto& layer : layers) requests += layer.size();
  RequestLog log(requests);
  for (const auto& layer : layers) log.Add(layer);
  return log;
}

// Sets of experts are bits of a number; costs are reads so far.
using Costs = std::map<uint32_t, int>;

void Lower(Costs& costs, uint32_t state, int cost) {
  const auto [at, is_new] = costs.try_emplace(state, cost);
  at->second = std::min(at->second, cost);
}

// Every order of a layer's requests, every victim, or none: what is read need not stay.
Costs AfterLayer(const Costs& before, const std::vector<uint32_t>& layer, int slots) {
  std::map<uint32_t, Costs> by_rest;  // what is left of the layer -> who is there
  uint32_t all = 0;
  for (const uint32_t e : layer) all |= 1U << e;
  by_rest[all] = before;
  while (by_rest.rbegin()->first != 0) {
    const auto [rest, states] = *by_rest.rbegin();
    by_rest.erase(rest);
    for (const auto& [here, cost] : states) {
      for (uint32_t e = 0; e < 32; ++e) {
        const uint32_t bit = 1U << e;
        if ((rest & bit) == 0) continue;
        Costs& then = by_rest[rest & ~bit];
        if ((here & bit) != 0) {
          Lower(then, here, cost);
        } else if (std::popcount(here) < slots) {
          Lower(then, here | bit, cost + 1);
        } else {
          Lower(then, here, cost + 1);
          for (uint32_t v = 0; v < 32; ++v) {
            if ((here >> v & 1U) != 0) Lower(then, (here & ~(1U << v)) | bit, cost + 1);
          }
        }
      }
    }
  }
  return by_rest.at(0);
}

int FewestByTryingAll(const Layers& layers, int slots, const std::vector<uint32_t>& present) {
  uint32_t here = 0;
  for (const uint32_t e : present) here |= 1U << e;
  Costs costs{{here, 0}};
  for (const auto& layer : layers) costs = AfterLayer(costs, layer, slots);
  int least = costs.begin()->second;
  for (const auto& [state, cost] : costs) least = std::min(least, cost);
  return least;
}

TEST(RequestLog, ReadsAsLittleAsTheBestOfAllWays) {
  std::mt19937 random(1);
  constexpr uint32_t kExperts = 6;
  for (int round = 0; round < 300; ++round) {
    const int slots = 1 + static_cast<int>(random() % 4);
    std::vector<uint32_t> experts(kExperts);
    for (uint32_t e = 0; e < kExperts; ++e) experts[e] = e;
    Layers layers;
    for (size_t n = 1 + random() % 8; layers.size() < n;) {
      std::ranges::shuffle(experts, random);
      layers.emplace_back(experts.begin(), experts.begin() + 1 + random() % 3);
    }
    std::ranges::shuffle(experts, random);
    const std::vector<uint32_t> present(
        experts.begin(), experts.begin() + random() % (static_cast<uint32_t>(slots) + 1));
    EXPECT_EQ(LogOf(layers).FewestReads(static_cast<uint64_t>(slots), present),
              static_cast<uint64_t>(FewestByTryingAll(layers, slots, present)))
        << "round " << round;
  }
}

TEST(RequestLog, StartsFromWhoIsThere) {
  const RequestLog log = LogOf({{0, 1}, {2}, {0, 1}});
  EXPECT_EQ(log.FewestReads(3, {}), 3U);
  EXPECT_EQ(log.FewestReads(3, std::vector<uint32_t>{0, 1}), 1U);
  EXPECT_EQ(log.FewestReads(3, std::vector<uint32_t>{0, 1, 2}), 0U);
  EXPECT_EQ(log.FewestReads(3, std::vector<uint32_t>{7, 8, 9}), 3U);  // no request for these
  EXPECT_EQ(log.FewestReads(2, std::vector<uint32_t>{0, 1}), 1U);     // 2 takes no expert's slot
}

TEST(RequestLog, KeepsNoMoreThanItsCapacity) {
  RequestLog log(3);
  log.Add(std::vector<uint32_t>{1, 2});
  EXPECT_TRUE(log.is_complete());
  log.Add(std::vector<uint32_t>{1, 2});
  EXPECT_FALSE(log.is_complete());
  log.Add(std::vector<uint32_t>{1});  // would fit, but what came before is lost
  EXPECT_FALSE(log.is_complete());
  EXPECT_GE(RequestLog::BytesFor(1000, 0), 8000U);
}

}  // namespace
}  // namespace moestro
