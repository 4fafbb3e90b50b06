// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/support/product_testing.h"

namespace moestro {
namespace {

// Cells of a product of three factors with 7, 5 and 3 values; keys are all pairs of two factors.
std::vector<Keys> Product() {
  std::vector<Keys> cells;
  for (int a = 0; a < 7; ++a) {
    for (int b = 0; b < 5; ++b) {
      for (int c = 0; c < 3; ++c) {
        const Keys first = {"a" + std::to_string(a)};
        const Keys second = {"b" + std::to_string(b)};
        const Keys third = {"c" + std::to_string(c)};
        cells.push_back(
            Joined(PairsOf(first, second), {PairsOf(first, third), PairsOf(second, third)}));
      }
    }
  }
  return cells;
}

TEST(Products, TheCoverHasEachKey) {
  const std::vector<Keys> cells = Product();
  const std::vector<uint32_t> parts = PartsOf(cells);
  std::set<std::string> wanted;
  std::set<std::string> found;
  size_t n_cover = 0;
  for (size_t i = 0; i < cells.size(); ++i) {
    wanted.insert(cells[i].begin(), cells[i].end());
    if (parts[i] != 0) continue;
    found.insert(cells[i].begin(), cells[i].end());
    ++n_cover;
  }
  EXPECT_EQ(wanted.size(), 35U + 21U + 15U);
  EXPECT_EQ(found, wanted);
  EXPECT_GE(n_cover, 35U);  // the pairs of the two largest factors
  EXPECT_LE(n_cover, 45U);
}

TEST(Products, PartsTogetherAreAllCellsAndSlicesAreEqual) {
  const std::vector<Keys> cells = Product();
  std::map<uint32_t, size_t> sizes;
  for (const uint32_t part : PartsOf(cells)) ++sizes[part];
  ASSERT_EQ(sizes.size(), kSlices + 1);
  EXPECT_EQ(sizes.rbegin()->first, kSlices);
  for (uint32_t slice = 1; slice <= kSlices; ++slice) {
    EXPECT_LE(sizes[1] - sizes[slice], 1U) << slice;
  }
  std::vector<size_t> all;
  std::vector<size_t> numbers(cells.size());
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = i;
  for (uint32_t part = 0; part <= kSlices; ++part) {
    const auto keys = [&](size_t i) { return cells[i]; };
    const std::vector<size_t> chosen = CellsOfPart(part, numbers, keys);
    all.insert(all.end(), chosen.begin(), chosen.end());
  }
  std::ranges::sort(all);
  EXPECT_EQ(all, numbers);
}

TEST(Products, ACellWithAKeyOfItsOwnIsInTheCover) {
  EXPECT_EQ(PartsOf(std::vector<Keys>{{"a"}, {"a"}, {"a", "odd"}, {"a"}, {"b"}}),
            (std::vector<uint32_t>{1, 2, 0, 3, 0}));
}

// Five values of a factor and three of another: none of the three is in one cell alone.
TEST(Products, ValuesAreSpreadOverTheCover) {
  std::vector<Keys> cells;
  for (const char* a : {"a", "b", "c", "d", "e"}) {
    for (const char* b : {"x", "y", "z"}) cells.push_back({a, b});
  }
  std::map<std::string, size_t> n;
  const std::vector<uint32_t> parts = PartsOf(cells);
  for (size_t i = 0; i < cells.size(); ++i) {
    if (parts[i] == 0) ++n[cells[i].back()];
  }
  EXPECT_EQ(n, (std::map<std::string, size_t>{{"x", 2}, {"y", 2}, {"z", 1}}));
}

TEST(Products, CellsWithoutKeysAreInSlices) {
  EXPECT_EQ(PartsOf(std::vector<Keys>(6)), (std::vector<uint32_t>{1, 2, 3, 4, 5, 1}));
  EXPECT_TRUE(PartsOf({}).empty());
}

}  // namespace
}  // namespace moestro
