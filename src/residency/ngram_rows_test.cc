// SPDX-License-Identifier: MIT
#include "residency/ngram_rows.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

namespace moestro {
namespace {

NgramSpec Spec() {
  NgramSpec spec{.n_most = 3, .heads_of_each = 2, .n_values = 8, .n_taps = 4, .end = 7};
  spec.factors = {0x9E3779B97F4A7C15ULL, 0xC2B2AE3D27D4EB4FULL, 0x165667B19E3779F9ULL};
  spec.heads = {{.first = 0, .count = 101},
                {.first = 101, .count = 97},
                {.first = 198, .count = 89},
                {.first = 287, .count = 83}};
  return spec;
}

// The window of n tokens is written down first, cut from its newest token backwards; then each hash
// is computed anew.
std::vector<uint64_t> PlainRows(const NgramSpec& spec, const std::vector<Token>& text, size_t at) {
  std::vector<uint64_t> window = {static_cast<uint64_t>(text[at])};
  while (window.size() < spec.n_most && at >= window.size() &&
         text[at - window.size()] != spec.end) {
    window.push_back(static_cast<uint64_t>(text[at - window.size()]));
  }
  window.resize(spec.n_most, static_cast<uint64_t>(spec.end));
  std::vector<uint64_t> rows;
  for (uint32_t n = 2; n <= spec.n_most; ++n) {
    for (uint32_t i = 0; i < spec.heads_of_each; ++i) {
      uint64_t hash = 0;
      for (uint32_t j = 0; j < n; ++j) hash ^= window[j] * spec.factors[j];
      const NgramSpec::Head& head = spec.heads[(n - 2) * spec.heads_of_each + i];
      rows.push_back(head.first + hash % head.count);
    }
  }
  return rows;
}

std::vector<uint64_t> Rows(const NgramSpec& spec, const std::vector<Token>& text, size_t at) {
  std::vector<uint64_t> rows(spec.n_heads());
  NgramRows(spec, std::span(text).first(at + 1), rows);
  return rows;
}

TEST(NgramRowsTest, PlainLoopsNameTheSameRows) {
  const NgramSpec spec = Spec();
  std::mt19937_64 random(3);
  std::vector<Token> text(500);
  for (Token& token : text) token = static_cast<Token>(random() % 12);  // ends are frequent
  for (size_t at = 0; at < text.size(); ++at) {
    EXPECT_EQ(Rows(spec, text, at), PlainRows(spec, text, at)) << at;
  }
}

TEST(NgramRowsTest, OnlyTheLastTokensCountAndNoneBeyondAnEnd) {
  const NgramSpec spec = Spec();
  const std::vector<uint64_t> rows = Rows(spec, {1, 2, 3, 4}, 3);
  EXPECT_EQ(Rows(spec, {9, 2, 3, 4}, 3), rows);
  EXPECT_NE(Rows(spec, {1, 5, 3, 4}, 3), rows);
  // A text's beginning is as an end before it; the last token itself cuts nothing.
  EXPECT_EQ(Rows(spec, {1, 7, 4}, 2), Rows(spec, {4}, 0));
  EXPECT_EQ(Rows(spec, {1, 7, 4}, 2), Rows(spec, {7, 7, 4}, 2));
  EXPECT_NE(Rows(spec, {1, 2, 7}, 2), Rows(spec, {7}, 0));
}

TEST(NgramRowsTest, RowsAreOfTheirHeads) {
  const NgramSpec spec = Spec();
  EXPECT_EQ(spec.n_history(), 9U);
  for (Token token = 0; token < 50; ++token) {
    const std::vector<uint64_t> rows = Rows(spec, {3, token}, 1);
    for (size_t h = 0; h < rows.size(); ++h) {
      EXPECT_GE(rows[h], spec.heads[h].first);
      EXPECT_LT(rows[h], spec.heads[h].first + spec.heads[h].count);
    }
  }
}

}  // namespace
}  // namespace moestro
