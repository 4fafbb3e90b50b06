// SPDX-License-Identifier: MIT
#include "forward/experts/expert_exec.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "decide/layer/layer_planner.h"
#include "tests/support/memory_reader_testing.h"

namespace moestro {
namespace {

constexpr uint32_t kExpertWidth = 32;
constexpr uint64_t kSlice = uint64_t{kExpertWidth} * kExpertWidth * sizeof(float);

// One layer of three experts, all matrices [kExpertWidth, kExpertWidth] of F32 and nothing but
// ones.
class ExpertExecTest : public ::testing::Test {
 protected:
  void SetUp() override {
    uint64_t offset = 0;
    for (uint16_t e = 0; e < 3; ++e) {
      std::array<Extent, kMatrices> slices;
      for (Extent& slice : slices) {
        slice = {.file = 0, .offset = offset, .length = kSlice};
        offset += kSlice;
      }
      catalog_.Add(ExpertLayerId{0}, ExpertId{e}, {}, slices);
    }
    const std::vector<float> ones(offset / sizeof(float), 1.0F);
    std::vector<std::byte> bytes(offset);
    std::memcpy(bytes.data(), ones.data(), offset);
    reader_ = std::make_unique<MemoryReader>(std::vector<std::vector<std::byte>>{bytes});
    queue_ = std::make_unique<ReadQueue>(*reader_, std::vector<std::string>{"model.gguf"});
    const std::array<uint64_t, 1> slots = {2};
    residency_ = *Residency::Create(catalog_, slots, {}, *queue_);

    FormKernels& kernels = kernels_.front();
    kernels.kernel.fill(*FindExpertKernel(GGML_TYPE_F32));
    kernels.row_bytes.fill(kExpertWidth * sizeof(float));
    kernels.n_embd = kernels.n_ff = kExpertWidth;
    Create(1);
  }

  void Create(uint32_t threads) {
    exec_.reset();
    team_.reset();
    device_.emplace(*CpuDevice::Open(threads));
    team_.emplace(*Team::Create(*device_));
    const RouterSpec router{.n_expert = 3, .n_used = 2};
    exec_ = *ExpertExec::Create({.team = *team_,
                                 .residency = *residency_,
                                 .catalog = catalog_,
                                 .kernels = kernels_,
                                 .layers = layers_},
                                ExpertExec::LimitsFor(kernels_, router, 1));
  }

  // One row through experts 0 and 1 with weights 1 and 2.
  Status Run() {
    const Routing routing{
        .n_tokens = 1, .n_used = 2, .experts = {ExpertId{0}, ExpertId{1}}, .weights = {1.0F, 2.0F}};
    const RowKind kind = RowKind::kDecode;
    const LayerPlan plan = PlanLayer(ExpertLayerId{0}, routing, {&kind, 1},
                                     [this](ExpertKey key) { return residency_->contains(key); });
    LeaseStream leases(*residency_, plan);
    return exec_->Run(
        plan, {.ffn_in = input_.data(), .residual = residual_.data(), .hidden = hidden_.data()},
        leases, nullptr);
  }

  ExpertCatalog catalog_;
  std::unique_ptr<MemoryReader> reader_;
  std::unique_ptr<ReadQueue> queue_;
  std::unique_ptr<Residency> residency_;
  std::optional<CpuDevice> device_;
  std::optional<Team> team_;
  std::vector<LayerForm> layers_ = std::vector<LayerForm>(1);
  std::vector<FormKernels> kernels_ = std::vector<FormKernels>(1);
  std::unique_ptr<ExpertExec> exec_;
  std::vector<float> input_ = std::vector<float>(kExpertWidth, 0.0F);
  std::vector<float> residual_ = std::vector<float>(kExpertWidth, 7.0F);
  std::vector<float> hidden_ = std::vector<float>(kExpertWidth, -1.0F);
};

TEST_F(ExpertExecTest, SumsWeightedExpertsAndTheResidual) {
  input_[0] = 1.0F;
  ASSERT_TRUE(Run().has_value());
  // Every product of the gate and up rows is 1, silu(1) * 1 = 0.731..., 32 of these in a down row.
  const float expert = kExpertWidth * (1.0F / (1.0F + std::exp(-1.0F)));
  for (const float value : hidden_) EXPECT_NEAR(value, 7.0F + 3 * expert, 1e-3F);
}

// Whichever thread it is: the others do not wait for it, and the next layer is computed.
TEST_F(ExpertExecTest, WhatAThreadThrowsIsAnErrorOfTheLayer) {
  static std::atomic<int> calls;
  static void (*multiply)(const ExpertKernel&, const ExpertKernel::Call&);
  static int bad;
  Create(3);
  FormKernels& kernels = kernels_.front();
  multiply = kernels.kernel.front().multiply;
  for (ExpertKernel& kernel : kernels.kernel) {
    kernel.multiply = [](const ExpertKernel& self, const ExpertKernel::Call& call) {
      if (calls.fetch_add(1) == bad) throw std::bad_alloc();
      multiply(self, call);
    };
  }
  input_[0] = 1.0F;
  for (bad = 0; bad < 4; ++bad) {
    calls = 0;
    const Status ran = Run();
    ASSERT_FALSE(ran) << bad;
    EXPECT_EQ(ran.error().code, Errc::kNoMemory) << ran.error().message;
    residency_->Settle();
    EXPECT_TRUE(Run().has_value()) << bad;
  }
}

// A lease outside the layer on a slot that the layer needs is our own mistake, which ends the
// program with a sentence; it must not look like an endlessly slow disk.
TEST_F(ExpertExecTest, ALayerThatCanNeverGetItsSlotsEndsTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto other = residency_->TryAcquire({.layer = {0}, .expert = {2}}, Use::kDecode);
  ASSERT_TRUE(other.has_value());
  residency_->Drain();
  EXPECT_TRUE(Run().has_value());  // one slot is enough for two experts, one after the other
  const auto another = residency_->TryAcquire({.layer = {0}, .expert = {0}}, Use::kDecode);
  ASSERT_TRUE(another.has_value());
  residency_->Drain();
  EXPECT_DEATH(EXPECT_FALSE(Run().has_value()), "no slot");
}

}  // namespace
}  // namespace moestro
