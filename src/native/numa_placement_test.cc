// SPDX-License-Identifier: MIT
#include "native/numa_placement.h"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/number.h"
#include "base/pages.h"
#include "compute/cpu_device.h"
#include "compute/weight_set.h"
#include "core/machine.h"
#include "tests/support/memory_reader_testing.h"
#include "tests/support/numa_machine_testing.h"

namespace moestro {
namespace {

const uint64_t kPage = PageBytes();
constexpr uint32_t kEmbd = 1024;
constexpr uint32_t kFf = 768;
constexpr uint64_t kSlots = 260;  // more than are placed at a time

void Quietly(const char* /*what*/, uint64_t /*done*/, uint64_t /*total*/) {}

// Two nodes and two threads; records the touched pages one by one.
class NumaPartTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto device = CpuDevice::Open(2);
    ASSERT_TRUE(device);
    device_ = std::make_unique<CpuDevice>(*std::move(device));
    auto team = Team::Create(*device_);
    ASSERT_TRUE(team);
    team_ = std::make_unique<Team>(*std::move(team));
  }

  std::unique_ptr<NumaPlacement> Begin(std::string_view asked = "auto") {
    auto part = NumaPlacement::Begin(asked, machine_, *team_);
    EXPECT_TRUE(part) << part.error().message;
    return part ? *std::move(part) : nullptr;
  }

  // Slots for experts of [kEmbd][kFf] in Q4_0, whose windows are a block larger.
  void MakeSlots() { MakeSlots(uint64_t{kEmbd} * kFf / 32 * 18, kEmbd, kFf); }
  void MakeSlots(uint64_t bytes, uint32_t n_embd, uint32_t n_ff) {
    std::array<Extent, kMatrices> slices;
    for (size_t m = 0; m < kMatrices; ++m) slices[m] = {.offset = 96 + m * bytes, .length = bytes};
    catalog_.Add(
        ExpertLayerId{0}, ExpertId{0},
        {.types = {GGML_TYPE_Q4_0, GGML_TYPE_Q4_0, GGML_TYPE_Q4_0}, .n_embd = n_embd, .n_ff = n_ff},
        slices);
    reader_ = std::make_unique<MemoryReader>(std::vector<std::vector<std::byte>>{{}});
    queue_ =
        std::make_unique<ReadQueue>(*reader_, std::vector<std::string>{"m"}, ReadQueueOptions{});
    auto made = Residency::Create(catalog_, std::array{kSlots}, PolicyChoice{}, *queue_);
    ASSERT_TRUE(made);
    residency_ = *std::move(made);
  }

  // The node from which each page was taken. No page is touched twice.
  std::map<uint64_t, uint32_t> NodesOfPages() const {
    std::map<uint64_t, uint32_t> nodes;
    for (const NotedNumaMachine::Touched& t : machine_->touched) {
      const auto begin = reinterpret_cast<uintptr_t>(t.memory.data());
      EXPECT_EQ(begin % kPage + t.memory.size() % kPage, 0U);
      EXPECT_EQ(t.how, NewPages::kPreferred);
      EXPECT_EQ(t.nodes.size(), 1U);
      EXPECT_EQ(t.nodes, t.cpus);  // a node's number is its CPU's
      for (uint64_t at = begin; at < begin + t.memory.size(); at += kPage) {
        EXPECT_TRUE(nodes.emplace(at, t.nodes.front()).second);
      }
    }
    return nodes;
  }

  // The pages of bytes [begin, end) are of `node`, but for some at both ends.
  static void ExpectNode(const std::map<uint64_t, uint32_t>& nodes, uint64_t begin, uint64_t end,
                         uint32_t node, uint64_t ends) {
    for (uint64_t at = AlignDown(begin, kPage) + ends * kPage; at + ends * kPage < end;
         at += kPage) {
      const auto found = nodes.find(at);
      ASSERT_NE(found, nodes.end()) << at - begin;
      EXPECT_EQ(found->second, node) << at - begin;
    }
  }

  std::shared_ptr<NotedNumaMachine> machine_ = std::make_shared<NotedNumaMachine>(2);
  std::unique_ptr<CpuDevice> device_;
  std::unique_ptr<Team> team_;
  ExpertCatalog catalog_;
  std::unique_ptr<MemoryReader> reader_;
  std::unique_ptr<ReadQueue> queue_;
  std::unique_ptr<Residency> residency_;
};

TEST_F(NumaPartTest, ThreadsGoToTheirNodesAndComeBack) {
  {
    const auto part = Begin();
    ASSERT_NE(part, nullptr);
    const auto threads = machine_->threads();
    ASSERT_EQ(threads.size(), 2U);
    for (uint32_t t = 0; t < 2; ++t) {
      EXPECT_EQ(threads[t].cpus, std::vector<uint32_t>{t});
      EXPECT_EQ(threads[t].how, NewPages::kInterleaved);
      EXPECT_EQ(threads[t].nodes, (std::vector<uint32_t>{0, 1}));
    }
  }
  for (const NotedNumaMachine::Thread& thread : machine_->threads()) {
    EXPECT_EQ(thread.cpus, (std::vector<uint32_t>{0, 1}));
    EXPECT_EQ(thread.how, NewPages::kUsual);
  }
}

TEST_F(NumaPartTest, OneNodeOffAndAChosenPolicyAreLeftAlone) {
  EXPECT_EQ(Begin("off"), nullptr);
  EXPECT_EQ(machine_->asked, 0);
  machine_->is_chosen = true;
  EXPECT_EQ(Begin(), nullptr);
  machine_ = std::make_shared<NotedNumaMachine>(1);
  EXPECT_EQ(Begin(), nullptr);
  EXPECT_EQ(machine_->asked_for_pages, 0);
  EXPECT_EQ(machine_->calls, 0);
}

TEST_F(NumaPartTest, RowsOfExpertsLieBesideTheirThreads) {
  MakeSlots();
  const auto part = Begin();
  ASSERT_TRUE(part->PlaceSlots(catalog_, *residency_, Quietly));
  const auto nodes = NodesOfPages();
  const Residency::Grid grid = residency_->grid(0);
  ASSERT_EQ(machine_->small.size(), 1U);
  EXPECT_EQ(machine_->small.front().data(), grid.begin);
  EXPECT_EQ(machine_->small.front().size(), kSlots * grid.stride);
  for (const uint64_t slot : {0U, 1U, 255U, 256U, 259U}) {
    for (size_t m = 0; m < kMatrices; ++m) {
      const uint32_t n = m == 2 ? kEmbd : kFf;
      const uint64_t row_bytes = uint64_t{m == 2 ? kFf : kEmbd} / 32 * 18;
      const uint64_t begin =
          reinterpret_cast<uintptr_t>(grid.begin) + slot * grid.stride + grid.offset[m];
      const uint64_t middle = begin + ShareBegin(n, 1, 2) * row_bytes;
      // A matrix begins up to a block behind its window.
      ExpectNode(nodes, begin, middle, 0, 1);
      ExpectNode(nodes, middle + kPage, begin + n * row_bytes, 1, 1);
      EXPECT_FALSE(nodes.contains(AlignDown(middle, kPage)));
    }
  }
}

// A window of a byte more than whole blocks ends with them.
TEST_F(NumaPartTest, NothingBehindTheLastSlotIsTouched) {
  MakeSlots(3 * kPage + 1, 1, 1);
  const auto part = Begin();
  ASSERT_TRUE(part->PlaceSlots(catalog_, *residency_, Quietly));
  const Residency::Grid grid = residency_->grid(0);
  uint64_t bytes = 0;
  for (const NotedNumaMachine::Touched& t : machine_->touched) {
    EXPECT_GE(t.memory.data(), grid.begin);
    EXPECT_LE(t.memory.data() + t.memory.size(), grid.begin + grid.slots * grid.stride);
    bytes += t.memory.size();
  }
  EXPECT_EQ(bytes, grid.slots * grid.stride);  // a thread has the only row
}

TEST_F(NumaPartTest, RowsOfDenseWeightsLieBesideTheirThreads) {
  const auto request = [](const char* name, int64_t n_out) {
    return WeightRequest{
        .name = name, .type = GGML_TYPE_Q8_0, .ne = {kEmbd, n_out, 1, 1}, .only_multiplied = true};
  };
  WeightSet set = WeightSet::Plan(
      *device_, {request("q", 4096), request("k", 512), request("v", 512), request("o", 1024)}, {});
  ASSERT_TRUE(set.Allocate());
  if (RowProductOf(set.tensor(0)) == nullptr || RowProductOf(set.tensor(0))->kernel == nullptr) {
    GTEST_SKIP() << "this processor has no kernel of ours";
  }
  ModelTensors tensors;
  auto& layer = tensors.layers.emplace_back();
  layer.attn_q = set.tensor(0);
  layer.attn_k = set.tensor(1);
  layer.attn_v = set.tensor(2);
  layer.attn_out = set.tensor(3);
  const auto part = Begin();
  ASSERT_TRUE(part->PlaceDense(tensors));
  const auto nodes = NodesOfPages();
  // Of 320 tiles of queries, keys and values together the first thread has 160, all of queries.
  const auto at = [&](size_t i, uint64_t row) {
    return reinterpret_cast<uintptr_t>(set.tensor(i)->data) + row * set.tensor(i)->nb[1];
  };
  ExpectNode(nodes, at(0, 0), at(0, 2560), 0, 1);
  ExpectNode(nodes, at(0, 2560), at(0, 4096), 1, 1);
  ExpectNode(nodes, at(1, 0), at(1, 512), 1, 1);
  ExpectNode(nodes, at(2, 0), at(2, 512), 1, 1);
  ExpectNode(nodes, at(3, 0), at(3, 512), 0, 1);
  ExpectNode(nodes, at(3, 512), at(3, 1024), 1, 1);
}

TEST_F(NumaPartTest, ThreadsThatCannotMoveOwnNoRows) {
  MakeSlots();
  machine_->fault.run_on = EPERM;
  const auto part = Begin();
  ASSERT_NE(part, nullptr);
  EXPECT_FALSE(part->plan().has_rows());
  EXPECT_EQ(ToText(part->plan()), "2 NUMA nodes: memory interleaved");
  ASSERT_TRUE(part->PlaceSlots(catalog_, *residency_, Quietly));
  EXPECT_TRUE(machine_->touched.empty());
  EXPECT_TRUE(machine_->small.empty());
}

// Docker's usual rules: threads may move, and a page comes from where its thread is.
TEST_F(NumaPartTest, WhereMemoryPoliciesAreForbiddenTheFirstTouchDecides) {
  MakeSlots();
  machine_->fault = {.take_pages = EPERM, .keep_small = EINVAL};
  const auto part = Begin();
  ASSERT_NE(part, nullptr);
  ASSERT_TRUE(part->PlaceSlots(catalog_, *residency_, Quietly));
  uint64_t bytes = 0;
  for (const NotedNumaMachine::Touched& t : machine_->touched) {
    EXPECT_EQ(t.cpus.size(), 1U);
    bytes += t.memory.size();
  }
  EXPECT_GT(bytes, kSlots * residency_->grid(0).stride * 9 / 10);
}

}  // namespace
}  // namespace moestro
