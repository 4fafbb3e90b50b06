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

// The context's assertion ends the process.
TEST(ContextSizes, HaveALogitsRowForEachPlace) {
  for (const uint32_t n_ctx : {1U, 32U, 4096U}) {
    for (const uint32_t sequences : {1U, 4U, 32U, kMostTexts}) {
      for (const uint64_t n_vocab : {0U, 256U, 200'000U}) {
        const ContextSizes sizes = SizesOf(n_ctx, 0, sequences, n_vocab);
        for (const uint32_t places : {sizes.places, sizes.places_of_states}) {
          EXPECT_GE(sizes.outputs, places);
          EXPECT_GE(places, 2 * sequences + 2);
          EXPECT_LE(places, 256U);
        }
        EXPECT_GE(sizes.chunk, sequences);
      }
    }
  }
}

// A pool with a slot for each of its experts has room for any choice, however many groups are in
// use together.
TEST(SlotsForRows, AreNoMoreThanThereAreExperts) {
  TensorInfo info{.name = "experts", .ne = {32, 16, 8, 1}, .extent = {0, 0, 8 * 1024}};
  LearnedGraph graph{.first_node = "first", .most_open = 2};
  graph.groups.push_back({.ids = {}, .n_expert = 8, .n_used = 3, .matrices = {{.info = &info}}});
  const ExpertCatalog catalog = CatalogOf(graph.groups);
  const auto slots = [&](uint32_t rows) { return SlotsForRows(graph, catalog, rows).front(); };
  EXPECT_EQ(slots(1), 6U);
  EXPECT_EQ(slots(2), 8U);
  EXPECT_EQ(slots(100), 8U);
  graph.most_open = 1;
  EXPECT_EQ(slots(1), 3U);
  EXPECT_EQ(slots(2), 6U);
  EXPECT_EQ(slots(UINT32_MAX), 8U);
}

TEST(EvenRows, HaveEachSequenceOnce) { EXPECT_EQ(Even({1, 2, 1, 2}), 2U); }

}  // namespace
}  // namespace moestro
