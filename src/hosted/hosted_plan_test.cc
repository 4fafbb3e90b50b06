// SPDX-License-Identifier: MIT
#include "hosted/hosted_plan.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <vector>

namespace moestro {
namespace {

size_t Even(std::initializer_list<uint32_t> sequences) {
  std::vector<BatchRow> rows;
  for (const uint32_t sequence : sequences) rows.push_back({.sequence = {sequence}});
  return EvenRows(rows);
}

TEST(EvenRows, AreRunsAsLongAsTheFirst) {
  EXPECT_EQ(Even({7}), 1U);
  EXPECT_EQ(Even({7, 7, 7}), 3U);
  EXPECT_EQ(Even({1, 2, 3, 4, 4}), 3U);
  EXPECT_EQ(Even({4, 4, 1, 2}), 2U);
  EXPECT_EQ(Even({4, 4, 5, 5, 6}), 4U);
}

TEST(EvenRows, HaveEachSequenceOnce) { EXPECT_EQ(Even({1, 2, 1, 2}), 2U); }

}  // namespace
}  // namespace moestro
