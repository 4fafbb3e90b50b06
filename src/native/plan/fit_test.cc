// SPDX-License-Identifier: MIT
#include "native/plan/fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/number.h"

namespace moestro {
namespace {

ExpertCatalog Catalog(uint64_t experts, uint64_t slice) {
  ExpertCatalog catalog;
  catalog.pools.push_back({.slice_bytes = {slice, slice, slice}, .experts = experts});
  return catalog;
}

TEST(WhatFits, RunsFromTheSmallestBudgetToEverything) {
  constexpr uint64_t kExperts = 6144;
  const FixedMemory fixed{
      .dense = kGiB, .kv = 400 * kMiB, .work = 20 * kMiB, .process = 100 * kMiB};
  const auto fits = WhatFits(Catalog(kExperts, 864 * kKiB), 8, fixed, 4096);
  ASSERT_GT(fits.size(), 4U);
  EXPECT_GE(fits.front().slots, 8U);
  EXPECT_LT(fits.front().share(), 0.01);
  EXPECT_EQ(fits.back().slots, kExperts);
  EXPECT_EQ(fits.back().share(), 1.0);
  for (size_t i = 1; i < fits.size(); ++i) {
    EXPECT_GT(fits[i].ram, fits[i - 1].ram);
    EXPECT_GE(fits[i].slots, fits[i - 1].slots);
  }
  EXPECT_LT(fits[fits.size() - 2].share(), 1.0);
}

TEST(WhatFitsOnDevice, RunsOverUsualSizesToEverything) {
  ExpertCatalog catalog = Catalog(6144, 864 * kKiB);
  catalog.forms.push_back({.n_embd = 2048, .n_ff = 768});
  ModelSpec spec;
  spec.n_embd = 2048;
  const std::vector<DeviceFit> fits = WhatFitsOnDevice(catalog, spec, {}, 0);
  ASSERT_GT(fits.size(), 8U);
  EXPECT_EQ(fits.front().vram, 256 * kMiB);
  EXPECT_EQ(fits.back().slots, 6144U);
  for (size_t i = 1; i < fits.size(); ++i) {
    EXPECT_GT(fits[i].vram, fits[i - 1].vram);
    EXPECT_GT(fits[i].slots, fits[i - 1].slots);
  }
  // 8 GiB less what launches take, in experts of 2.53 MiB.
  const auto eight = std::ranges::find(fits, 8 * kGiB, &DeviceFit::vram);
  ASSERT_NE(eight, fits.end());
  EXPECT_NEAR(static_cast<double>(eight->slots), 8.0 * 1024 / 2.53, 60.0);
}

TEST(WhatFitsOnDevice, TheDensePartComesFirstWhereThereIsRoom) {
  ExpertCatalog catalog = Catalog(6144, 864 * kKiB);
  catalog.forms.push_back({.n_embd = 2048, .n_ff = 768});
  ModelSpec spec;
  spec.n_embd = 2048;
  spec.router.n_used = 8;
  const std::vector<DeviceFit> fits =
      WhatFitsOnDevice(catalog, spec, {.dense = kGiB, .kv = 512 * kMiB}, 512);
  EXPECT_FALSE(fits.front().has_dense);
  EXPECT_TRUE(fits.back().has_dense);
  EXPECT_EQ(fits.back().slots, 6144U);
  // 1.5 GiB are too little for the dense part and a token's experts; 2 GiB hold the dense part and
  // 80 to 160 experts.
  const auto at = [&](uint64_t vram) { return *std::ranges::find(fits, vram, &DeviceFit::vram); };
  EXPECT_FALSE(at(3 * kGiB / 2).has_dense);
  EXPECT_TRUE(at(2 * kGiB).has_dense);
  EXPECT_GT(at(2 * kGiB).slots, 80U);
  EXPECT_LT(at(2 * kGiB).slots, 160U);
}

// The smallest budget that an engine reports is the first row, and less does not fit, whatever the
// estimate.
TEST(WhatFits, BeginsWithTheSmallestThatAnEngineNames) {
  const FixedMemory fixed{.work = 90 * kMiB,
                          .process = 50 * kMiB,
                          .staging = 70 * kMiB,
                          .least_work = 10 * kMiB,
                          .smallest = 123 * kMiB};
  const ExpertCatalog catalog = Catalog(96, 64 * kKiB);
  const auto fits = WhatFits(catalog, 4, fixed, 4096);
  ASSERT_GE(fits.size(), 2U);
  EXPECT_EQ(fits.front().ram, 123 * kMiB);
  EXPECT_EQ(fits.back().slots, 96U);
  EXPECT_FALSE(FitIn(122 * kMiB, catalog, 4, fixed, 4096));
  const auto exact = FitIn(123 * kMiB, catalog, 4, fixed, 4096);
  ASSERT_TRUE(exact);
  EXPECT_GT(exact->slots, 4U);  // what loading took is the slots' afterwards
}

// Estimates name whole MiB, too, and such a budget fits.
TEST(WhatFits, TheFirstBudgetFitsExactly) {
  const FixedMemory fixed{.dense = kMiB + 1, .process = 50 * kMiB};
  const auto fits = WhatFits(Catalog(96, 64 * kKiB), 4, fixed, 4096);
  EXPECT_EQ(fits.front().ram % kMiB, 0U);
  EXPECT_FALSE(FitIn(fits.front().ram - 1, Catalog(96, 64 * kKiB), 4, fixed, 4096));
}

TEST(WhatFits, ATinyModelHasItsSmallestAndItsWhole) {
  const auto fits = WhatFits(Catalog(96, 64 * kKiB), 4, {.process = 50 * kMiB}, 4096);
  ASSERT_EQ(fits.size(), 2U);
  EXPECT_LT(fits[0].share(), 1.0);
  EXPECT_EQ(fits[1].share(), 1.0);
}

}  // namespace
}  // namespace moestro
