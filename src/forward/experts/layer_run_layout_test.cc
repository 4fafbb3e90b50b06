// SPDX-License-Identifier: MIT
// Experts that are used again are interleaved in their slots, and results do not change.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "decide/layer/layer_planner.h"
#include "forward/experts/expert_exec.h"
#include "tests/support/memory_reader_testing.h"

namespace moestro {
namespace {

// Each thread has several blocks of every matrix's rows (layer_run.cc).
constexpr uint32_t kIn = 1024;
constexpr uint32_t kLayoutRows = 992;
constexpr uint16_t kExperts = 4;

std::vector<std::byte> MakeMatrix(int64_t n_in, int64_t n_rows, uint32_t seed) {
  std::vector<float> values(static_cast<size_t>(n_in * n_rows));
  uint32_t state = seed;
  for (float& value : values) {
    state = state * 1664525 + 1013904223;
    value = static_cast<float>(state >> 16) / 32768.0F - 1.0F;
  }
  std::vector<std::byte> bytes(ggml_row_size(GGML_TYPE_Q4_0, n_in) * static_cast<size_t>(n_rows));
  ggml_quantize_chunk(GGML_TYPE_Q4_0, values.data(), bytes.data(), 0, n_rows, n_in, nullptr);
  return bytes;
}

// One layer.
struct ModelOnDisk {
  ExpertCatalog catalog;
  std::vector<std::byte> file;

  ModelOnDisk() {
    for (uint16_t e = 0; e < kExperts; ++e) {
      std::array<Extent, kMatrices> slices;
      for (size_t m = 0; m < kMatrices; ++m) {
        const bool is_down = m == static_cast<size_t>(Matrix::kDown);
        const std::vector<std::byte> matrix =
            MakeMatrix(is_down ? kLayoutRows : kIn, is_down ? kIn : kLayoutRows,
                       static_cast<uint32_t>(e * kMatrices + m));
        slices[m] = {.file = 0, .offset = file.size(), .length = matrix.size()};
        file.insert(file.end(), matrix.begin(), matrix.end());
      }
      catalog.Add(ExpertLayerId{0}, ExpertId{e}, {}, slices);
    }
  }
};

class Layer {
 public:
  Layer(const ModelOnDisk& model, uint64_t slots, InterleaveWhen interleave,
        const MemoryScript& script = {})
      : catalog_(model.catalog) {
    const std::vector<std::byte>& file = model.file;
    reader_ = std::make_unique<MemoryReader>(std::vector<std::vector<std::byte>>{file}, script);
    queue_ = std::make_unique<ReadQueue>(*reader_, std::vector<std::string>{"model.gguf"});
    residency_ = *Residency::Create(catalog_, std::array{slots}, {.name = "lru"}, *queue_);
    device_.emplace(*CpuDevice::Open(2));
    team_.emplace(*Team::Create(*device_));
    FormKernels& kernels = kernels_.front();
    kernels.kernel.fill(*FindExpertKernel(GGML_TYPE_Q4_0));
    kernels.row_bytes = {ggml_row_size(GGML_TYPE_Q4_0, kIn), ggml_row_size(GGML_TYPE_Q4_0, kIn),
                         ggml_row_size(GGML_TYPE_Q4_0, kLayoutRows)};
    kernels.n_embd = kIn;
    kernels.n_ff = kLayoutRows;
    exec_ = *ExpertExec::Create({.team = *team_,
                                 .residency = *residency_,
                                 .catalog = catalog_,
                                 .kernels = kernels_,
                                 .layers = layers_,
                                 .interleave = interleave},
                                ExpertExec::LimitsFor(kernels_, kRouter, 1));
  }

  // The result of one row from two experts; empty: a read failed.
  std::vector<float> Run(uint16_t first, uint16_t second) {
    const Routing routing{.n_tokens = 1,
                          .n_used = 2,
                          .experts = {ExpertId{first}, ExpertId{second}},
                          .weights = {0.75F, 0.25F}};
    const RowKind kind = RowKind::kDecode;
    const LayerPlan plan = PlanLayer(ExpertLayerId{0}, routing, {&kind, 1},
                                     [this](ExpertKey key) { return residency_->contains(key); });
    std::vector<float> in(kIn);
    for (size_t i = 0; i < in.size(); ++i) in[i] = std::sin(static_cast<float>(i));
    const std::vector<float> residual(kIn, 1.0F);
    std::vector<float> hidden(kIn);
    bool is_done = false;
    {
      LeaseStream leases(*residency_, plan);
      const ExpertRows rows{
          .ffn_in = in.data(), .residual = residual.data(), .hidden = hidden.data()};
      is_done = exec_->Run(plan, rows, leases, nullptr).has_value();
    }
    residency_->Settle();
    return is_done ? hidden : std::vector<float>();
  }

  // Reads the expert without a use.
  void Load(uint16_t expert) {
    const std::array keys = {ExpertKey{.layer = {0}, .expert = {expert}}};
    LeaseStream leases(*residency_, keys, Urgency::kDemand);
    leases.Advance();
    residency_->Drain();
  }

  // REQUIRES: the expert is in a slot.
  Lease::Notes NotesOf(uint16_t expert) {
    const ExpertKey key{.layer = {0}, .expert = {expert}};
    EXPECT_TRUE(residency_->contains(key));
    return residency_->TryAcquire(key, Use::kDecode)->notes();
  }

 private:
  static constexpr RouterSpec kRouter{.n_expert = kExperts, .n_used = 2};

  const ExpertCatalog& catalog_;
  std::unique_ptr<MemoryReader> reader_;
  std::unique_ptr<ReadQueue> queue_;
  std::unique_ptr<Residency> residency_;
  std::optional<CpuDevice> device_;
  std::optional<Team> team_;
  std::vector<LayerForm> layers_ = std::vector<LayerForm>(1);
  std::vector<FormKernels> kernels_ = std::vector<FormKernels>(1);
  std::unique_ptr<ExpertExec> exec_;
};

TEST(LayerLayout, AnExpertIsInterleavedWhenItIsMetAgain) {
  const ModelOnDisk model;
  Layer layer(model, 2, InterleaveWhen::kMetAgain);
  const std::vector<float> first = layer.Run(0, 1);
  ASSERT_FALSE(first.empty());
  EXPECT_TRUE(layer.NotesOf(0).was_used);
  EXPECT_FALSE(layer.NotesOf(0).is_interleaved);
  EXPECT_EQ(layer.Run(0, 1), first) << "multiplied while it is interleaved";
  EXPECT_TRUE(layer.NotesOf(0).is_interleaved);
  EXPECT_TRUE(layer.NotesOf(1).is_interleaved);
  EXPECT_EQ(layer.Run(0, 1), first) << "interleaved before";
}

TEST(LayerLayout, WhereAllStayAnExpertIsInterleavedAtItsFirstUseIfItWasThere) {
  const ModelOnDisk model;
  Layer reference(model, kExperts, InterleaveWhen::kNever);
  for (const InterleaveWhen when : {InterleaveWhen::kMetAgain, InterleaveWhen::kThere}) {
    Layer layer(model, kExperts, when);
    layer.Load(0);
    EXPECT_EQ(layer.Run(0, 1), reference.Run(0, 1));
    EXPECT_EQ(layer.NotesOf(0).is_interleaved, when == InterleaveWhen::kThere);
    EXPECT_EQ(layer.Run(0, 1), reference.Run(0, 1));
    EXPECT_TRUE(layer.NotesOf(0).is_interleaved);
  }
}

TEST(LayerLayout, WhoeverTakesTheSlotLiesAsInTheFile) {
  const ModelOnDisk model;
  Layer layer(model, 2, InterleaveWhen::kMetAgain);
  Layer reference(model, kExperts, InterleaveWhen::kNever);
  for (int round = 0; round < 3; ++round) ASSERT_EQ(layer.Run(0, 1), reference.Run(0, 1));
  for (const auto& [a, b] : {std::pair<uint16_t, uint16_t>{2, 3}, {0, 3}, {0, 3}, {2, 0}, {1, 0}}) {
    EXPECT_EQ(layer.Run(a, b), reference.Run(a, b)) << a << ", " << b;
  }
}

TEST(LayerLayout, WithoutLeaveExpertsStayAsInTheFile) {
  const ModelOnDisk model;
  Layer layer(model, kExperts, InterleaveWhen::kNever);
  for (int round = 0; round < 3; ++round) ASSERT_FALSE(layer.Run(0, 1).empty());
  EXPECT_FALSE(layer.NotesOf(0).is_interleaved);
}

// A read that fails ends the layer after any number of the other expert's blocks.
TEST(LayerLayout, ALayerThatFailsLeavesNoExpertHalfInterleaved) {
  const ModelOnDisk model;
  Layer reference(model, kExperts, InterleaveWhen::kNever);
  const std::vector<float> expected = reference.Run(0, 1);
  for (const auto& [was_interleaved, when] : {std::pair{false, InterleaveWhen::kMetAgain},
                                              {true, InterleaveWhen::kMetAgain},
                                              {false, InterleaveWhen::kThere},
                                              {true, InterleaveWhen::kThere}}) {
    for (unsigned polls = 0; polls < 12; ++polls) {
      SCOPED_TRACE(polls);
      MemoryScript script{.polls = polls};
      script.faults.ErrorFrom(6, EIO);  // the first two experts are six reads
      Layer layer(model, 3, when, script);
      ASSERT_EQ(layer.Run(0, 1), expected);
      if (was_interleaved) {
        ASSERT_EQ(layer.Run(0, 1), expected);
      }
      ASSERT_TRUE(layer.Run(0, 2).empty());
      EXPECT_EQ(layer.Run(0, 1), expected);
      EXPECT_EQ(layer.Run(0, 1), expected);
    }
  }
}

}  // namespace
}  // namespace moestro
