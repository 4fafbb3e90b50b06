// SPDX-License-Identifier: MIT
#include "native/plan/numa_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <random>
#include <vector>

#include "base/number.h"
#include "core/machine.h"

namespace moestro {
namespace {

constexpr uint64_t kPlanPage = 4 * kKiB;
using Numbers = std::vector<uint32_t>;

// Nodes of so many cores of `per_core` CPUs, numbered as Linux does: first all cores, node after
// node, then their siblings.
NumaTopology Machine(const Numbers& cores, uint32_t per_core = 1) {
  NumaTopology machine{.is_whole = true};
  uint32_t next = 0;
  uint32_t all = 0;
  for (const uint32_t n : cores) all += n;
  for (const uint32_t n : cores) {
    NumaNode node{
        .id = static_cast<uint32_t>(machine.nodes.size()), .cores = n, .has_memory = true};
    for (uint32_t sibling = 0; sibling < per_core; ++sibling) {
      for (uint32_t c = 0; c < n; ++c) node.cpus.push_back(sibling * all + next + c);
    }
    next += n;
    machine.nodes.push_back(node);
  }
  return machine;
}

Numbers NodesOfThreads(const NumaPlan& plan) {
  Numbers nodes;
  for (const NumaPlan::Thread& thread : plan.threads) nodes.push_back(thread.node);
  return nodes;
}

void ExpectInterleaved(const NumaPlan& plan, const Numbers& nodes) {
  EXPECT_EQ(plan.nodes, nodes);
  EXPECT_TRUE(plan.is_on());
  EXPECT_FALSE(plan.has_rows());
}

TEST(PlanNuma, OneNodeNeedsNothing) {
  for (const NumaTopology& machine : {NumaTopology{}, Machine({8}), Machine({8}, 2)}) {
    EXPECT_FALSE(PlanNuma(machine, 8).is_on());
    EXPECT_FALSE(PlanNuma(machine, 8).has_rows());
    EXPECT_EQ(ToText(PlanNuma(machine, 8)), "");
  }
}

TEST(PlanNuma, ThreadsOfANodeStandSideBySide) {
  const NumaPlan two = PlanNuma(Machine({3, 3}), 6);
  EXPECT_EQ(two.nodes, (Numbers{0, 1}));
  EXPECT_EQ(NodesOfThreads(two), (Numbers{0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(two.threads[0].cpus, (Numbers{0, 1, 2}));
  EXPECT_EQ(two.threads[5].cpus, (Numbers{3, 4, 5}));
  EXPECT_EQ(ToText(two), "2 NUMA nodes: 3 + 3 threads, each beside its rows");
  const NumaPlan four = PlanNuma(Machine({1, 1, 1, 1}), 4);
  EXPECT_EQ(NodesOfThreads(four), (Numbers{0, 1, 2, 3}));
  EXPECT_EQ(ToText(four), "4 NUMA nodes: 1 + 1 + 1 + 1 threads, each beside its rows");
}

TEST(PlanNuma, NodesMayHaveDifferentNumbersOfCpus) {
  EXPECT_EQ(NodesOfThreads(PlanNuma(Machine({3, 1}), 4)), (Numbers{0, 0, 0, 1}));
}

TEST(PlanNuma, AThreadForEachCoreOrForEachCpu) {
  const NumaTopology machine = Machine({2, 2}, 2);
  const NumaPlan cores = PlanNuma(machine, 4);
  EXPECT_EQ(NodesOfThreads(cores), (Numbers{0, 0, 1, 1}));
  EXPECT_EQ(cores.threads[0].cpus, (Numbers{0, 1, 4, 5}));
  EXPECT_EQ(NodesOfThreads(PlanNuma(machine, 8)), (Numbers{0, 0, 0, 0, 1, 1, 1, 1}));
}

TEST(PlanNuma, OtherNumbersOfThreadsLeaveThemToTheKernel) {
  for (const uint32_t threads : {1U, 3U, 5U, 7U, 9U, 512U}) {
    ExpectInterleaved(PlanNuma(Machine({2, 2}, 2), threads), {0, 1});
  }
  EXPECT_EQ(ToText(PlanNuma(Machine({2, 2}), 1)), "2 NUMA nodes: memory interleaved");
}

TEST(PlanNuma, APartOfTheMachineIsInterleaved) {
  NumaTopology machine = Machine({2, 2});
  machine.is_whole = false;
  ExpectInterleaved(PlanNuma(machine, 4), {0, 1});
  machine.nodes[1].cpus = {3};  // a cpuset
  machine.nodes[1].cores = 1;
  ExpectInterleaved(PlanNuma(machine, 3), {0, 1});
}

TEST(PlanNuma, WhoMayRunOnOneNodeAloneStaysThere) {
  NumaTopology machine = Machine({2, 2});
  machine.is_whole = false;
  machine.nodes[1].cpus.clear();
  machine.nodes[1].cores = 0;
  EXPECT_FALSE(PlanNuma(machine, 2).is_on());
}

TEST(PlanNuma, MemoryWithoutCpusIsLeftAlone) {
  NumaTopology machine = Machine({2, 2});
  machine.nodes.push_back({.id = 2, .cpus = {}, .cores = 0, .has_memory = true});
  EXPECT_EQ(PlanNuma(machine, 4).nodes, (Numbers{0, 1}));
  machine = Machine({4});
  machine.nodes.push_back({.id = 1, .cpus = {}, .cores = 0, .has_memory = true});
  EXPECT_FALSE(PlanNuma(machine, 4).is_on());
}

TEST(PlanNuma, CpusWithoutMemoryOwnNoPages) {
  NumaTopology machine = Machine({1, 1, 1});
  machine.nodes[1].has_memory = false;
  const NumaPlan plan = PlanNuma(machine, 3);
  EXPECT_EQ(plan.nodes, (Numbers{0, 2}));
  EXPECT_EQ(NodesOfThreads(plan), (Numbers{0, NumaPlan::kNoNode, 2}));
  std::vector<NodeBytes> rows;
  const RowExtent matrix{.begin = 0, .row_bytes = kPlanPage, .rows = 48};
  AddRows(plan, {&matrix, 1}, rows);
  EXPECT_EQ(PagesOfNodes(rows, 0, kPlanPage),
            (std::vector<NodeBytes>{{.begin = 0, .end = 16 * kPlanPage, .node = 0},
                                    {.begin = 32 * kPlanPage, .end = 48 * kPlanPage, .node = 2}}));
  machine.nodes[0].has_memory = false;
  EXPECT_FALSE(PlanNuma(machine, 3).is_on());
}

// The rows that threads read, one by one, against the ranges of AddRows().
void ExpectRowsOfThreads(const NumaPlan& plan, const std::vector<RowExtent>& joined) {
  std::vector<NodeBytes> rows;
  AddRows(plan, joined, rows);
  const auto threads = static_cast<uint32_t>(plan.threads.size());
  uint64_t tiles = 0;
  for (const RowExtent& m : joined) tiles += TilesOf(m.rows);
  uint64_t tile = 0;
  for (const RowExtent& m : joined) {
    for (uint32_t row = 0; row < m.rows; ++row) {
      const uint64_t its = tile + row / kTileRows;
      uint32_t t = 0;
      while (its >= tiles * (t + 1) / threads) ++t;
      const uint64_t at = m.begin + row * m.row_bytes;
      const auto found = std::ranges::find_if(
          rows, [&](const NodeBytes& r) { return r.begin <= at && at + m.row_bytes <= r.end; });
      ASSERT_NE(found, rows.end()) << row;
      EXPECT_EQ(found->node, plan.threads[t].node) << row;
    }
    tile += TilesOf(m.rows);
  }
}

TEST(AddRows, FollowsTheThreadsThroughOneMatrixOrSeveral) {
  for (const Numbers& cores :
       {Numbers{1, 1}, Numbers{3, 1}, Numbers{2, 2, 2, 2}, Numbers{24, 24}}) {
    uint32_t threads = 0;
    for (const uint32_t n : cores) threads += n;
    const NumaPlan plan = PlanNuma(Machine(cores), threads);
    for (const uint32_t n : {1U, 16U, 17U, 512U, 768U, 2055U}) {
      ExpectRowsOfThreads(plan, {{.begin = 64, .row_bytes = 144, .rows = n}});
      // Queries, keys and values lie in no order.
      ExpectRowsOfThreads(plan, {{.begin = 9000000, .row_bytes = 144, .rows = n},
                                 {.begin = 64, .row_bytes = 144, .rows = 512},
                                 {.begin = 5000000, .row_bytes = 272, .rows = 100}});
    }
  }
}

TEST(AddRows, OneMatrixIsDividedAsExpertsAre) {
  const NumaPlan plan = PlanNuma(Machine({2, 3}), 5);
  std::vector<NodeBytes> rows;
  const RowExtent matrix{.begin = 100, .row_bytes = 10, .rows = 770};
  AddRows(plan, {&matrix, 1}, rows);
  const uint64_t middle = 100 + 10 * uint64_t{ShareBegin(770, 2, 5)};
  EXPECT_EQ(rows, (std::vector<NodeBytes>{{.begin = 100, .end = middle, .node = 0},
                                          {.begin = middle, .end = 7800, .node = 1}}));
}

// Each page goes to a node if rows of that node alone may lie there.
void ExpectPages(const std::vector<NodeBytes>& rows, uint64_t slack, uint64_t page) {
  const std::vector<NodeBytes> pages = PagesOfNodes(rows, slack, page);
  uint64_t end = 0;
  for (const NodeBytes& r : rows) end = std::max(end, r.end);
  for (size_t i = 0; i < pages.size(); ++i) {
    EXPECT_EQ(pages[i].begin % page + pages[i].end % page, 0U);
    EXPECT_LT(pages[i].begin, pages[i].end);
    if (i > 0) {
      EXPECT_LE(pages[i - 1].end, pages[i].begin);
    }
  }
  for (uint64_t at = 0; at < end + slack + page; at += page) {
    std::vector<uint32_t> owners;
    for (const NodeBytes& r : rows) {
      if (r.begin < at + page && r.end + slack > at) owners.push_back(r.node);
    }
    const bool is_one = !owners.empty() && std::ranges::count(owners, owners[0]) ==
                                               static_cast<std::ptrdiff_t>(owners.size());
    const auto found = std::ranges::find_if(
        pages, [&](const NodeBytes& p) { return p.begin <= at && at < p.end; });
    const uint32_t got = found != pages.end() ? found->node : NumaPlan::kNoNode;
    EXPECT_EQ(got, is_one ? owners[0] : NumaPlan::kNoNode) << at / page;
  }
}

TEST(PagesOfNodes, APageOfTwoNodesIsOfNone) {
  ExpectPages({{.begin = 0, .end = 10000, .node = 0}, {.begin = 10000, .end = 20000, .node = 1}}, 0,
              kPlanPage);
  EXPECT_EQ(PagesOfNodes(
                {{.begin = 0, .end = 10000, .node = 0}, {.begin = 10000, .end = 20480, .node = 1}},
                0, kPlanPage),
            (std::vector<NodeBytes>{{.begin = 0, .end = 8192, .node = 0},
                                    {.begin = 12288, .end = 20480, .node = 1}}));
}

TEST(PagesOfNodes, RowsThatFillNoPageGetNone) {
  EXPECT_TRUE(
      PagesOfNodes({{.begin = 0, .end = 2000, .node = 0}, {.begin = 2000, .end = 4096, .node = 1}},
                   0, kPlanPage)
          .empty());
  EXPECT_TRUE(PagesOfNodes({}, 0, kPlanPage).empty());
}

TEST(PagesOfNodes, AHugePageOfSmallMatricesIsOfNobody) {
  std::vector<NodeBytes> rows;
  for (uint64_t i = 0; i < 40; ++i) {
    rows.push_back(
        {.begin = i * 400000, .end = (i + 1) * 400000, .node = static_cast<uint32_t>(i % 2)});
  }
  EXPECT_TRUE(PagesOfNodes(rows, 0, 2 * kMiB).empty());
  ExpectPages(rows, 0, kPlanPage);
}

// Rows no shorter than the slack, in any order.
TEST(PagesOfNodes, EveryPageIsOfWhoAloneReadsIt) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const uint64_t slack = round % 3 == 0 ? 0 : 1 + random() % kPlanPage;
    std::vector<NodeBytes> rows;
    uint64_t at = random() % 5000;
    for (int i = 0; i < 12; ++i) {
      const uint64_t length = slack + 1 + random() % (round % 2 == 0 ? 20000 : 3000);
      rows.push_back(
          {.begin = at, .end = at + length, .node = static_cast<uint32_t>(random() % 3)});
      at += length + (random() % 2 == 0 ? 0 : random() % 9000);
    }
    std::ranges::shuffle(rows, random);
    ExpectPages(rows, slack, kPlanPage);
    if (HasFailure()) FAIL() << round;
  }
}

ExpertCatalog CatalogOf(const std::array<uint64_t, kMatrices>& lengths, bool is_fused) {
  ExpertCatalog catalog;
  std::array<Extent, kMatrices> slices;
  for (size_t m = 0; m < kMatrices; ++m) slices[m] = {.length = lengths[m]};
  catalog.Add(ExpertLayerId{0}, ExpertId{0}, {.types = {1, 1, 1}, .n_embd = 64, .n_ff = 32}, slices,
              is_fused);
  return catalog;
}

TEST(MatricesOfSlot, HaveTheirRowsWhereReadsLand) {
  const std::array<uint64_t, kMatrices> offset = {0, 8192, 16384};
  const auto plain = MatricesOfSlot(CatalogOf({3200, 3200, 6400}, false), 0, offset);
  ASSERT_EQ(plain.size(), 3U);
  EXPECT_EQ(plain[1].begin, 8192U);
  EXPECT_EQ(plain[1].rows, 32U);
  EXPECT_EQ(plain[1].row_bytes, 100U);
  EXPECT_EQ(plain[2].rows, 64U);
  const auto fused = MatricesOfSlot(CatalogOf({6400, 0, 6400}, true), 0, offset);
  ASSERT_EQ(fused.size(), 3U);
  EXPECT_EQ(fused[1].begin, 3200U);
  EXPECT_EQ(fused[1].row_bytes, 100U);
  EXPECT_TRUE(MatricesOfSlot(ExpertCatalog{}, 0, offset).empty());
}

// Qwen3-30B-A3B's experts in Q4_0: nearly all pages have one node.
TEST(PagesOfNodes, OfARealExpertAlmostAllPagesHaveANode) {
  const NumaPlan plan = PlanNuma(Machine({32, 32}), 64);
  std::vector<NodeBytes> rows;
  const uint64_t window = 884736 + kPlanPage;
  for (uint64_t m = 0; m < 30; ++m) {
    const uint32_t n = m % 3 == 2 ? 2048 : 768;
    const RowExtent matrix{.begin = m * window, .row_bytes = 884736 / n, .rows = n};
    AddRows(plan, {&matrix, 1}, rows);
  }
  uint64_t placed = 0;
  for (const NodeBytes& p : PagesOfNodes(rows, kPlanPage, kPlanPage)) placed += p.end - p.begin;
  EXPECT_GT(placed, 30 * window * 98 / 100);
  EXPECT_LT(placed, 30 * window);
}

}  // namespace
}  // namespace moestro
