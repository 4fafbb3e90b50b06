// SPDX-License-Identifier: MIT
// Products in tests: families times types, budgets times policies, and so on. A product's cells are
// dealt into parts. Part 0 is the cover: each key of any cell, and so each pair of values whose key
// is a pair, is in one of its cells. Parts 1 to kSlices hold the rest. Names of tests say the part:
// "Cover/Parity.SameTokensAndLogits/olmoe_F32", "Slice3/...". `make test` runs all but slices,
// `.ci/run` one slice beside that, `make check` and the sanitizers everything
// (docs/decisions/0044-products-in-slices.md).
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace moestro {

inline constexpr uint32_t kSlices = 5;

using Keys = std::vector<std::string>;

// Keys of two factors' values together: each of `a` with each of `b`.
Keys PairsOf(const Keys& a, const Keys& b);

// `a`, then the others.
Keys Joined(Keys a, const std::vector<Keys>& others);

// The part of each cell, whose keys are those at its place. The cover is chosen greedily: the cell
// with the most keys that the cover lacks, of equals the one whose other keys it has least often.
// The others go to the slices in turn.
std::vector<uint32_t> PartsOf(std::span<const Keys> keys);

// The cells of a part, in their order. `keys_of(cell)` are a cell's keys.
template <class Cell, class KeysOf>
std::vector<Cell> CellsOfPart(uint32_t part, const std::vector<Cell>& cells,
                              const KeysOf& keys_of) {
  std::vector<Keys> keys;
  for (const Cell& cell : cells) keys.push_back(keys_of(cell));
  const std::vector<uint32_t> parts = PartsOf(keys);
  std::vector<Cell> chosen;
  for (size_t i = 0; i < cells.size(); ++i) {
    if (parts[i] == part) chosen.push_back(cells[i]);
  }
  return chosen;
}

}  // namespace moestro

// Instantiates a suite with all parts; `cells_of(part)` are a part's parameters, `name` is as gtest
// has it.
#define MOESTRO_INSTANTIATE_PARTS(suite, cells_of, name)                           \
  INSTANTIATE_TEST_SUITE_P(Cover, suite, ::testing::ValuesIn(cells_of(0)), name);  \
  INSTANTIATE_TEST_SUITE_P(Slice1, suite, ::testing::ValuesIn(cells_of(1)), name); \
  INSTANTIATE_TEST_SUITE_P(Slice2, suite, ::testing::ValuesIn(cells_of(2)), name); \
  INSTANTIATE_TEST_SUITE_P(Slice3, suite, ::testing::ValuesIn(cells_of(3)), name); \
  INSTANTIATE_TEST_SUITE_P(Slice4, suite, ::testing::ValuesIn(cells_of(4)), name); \
  INSTANTIATE_TEST_SUITE_P(Slice5, suite, ::testing::ValuesIn(cells_of(5)), name)
