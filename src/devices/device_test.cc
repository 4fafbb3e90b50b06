// SPDX-License-Identifier: MIT
// Launches of a device, on ggml's CPU backend in the device's place, which computes the same
// graphs.
#include "devices/device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "devices/local_transport.h"

namespace moestro {
namespace {

constexpr uint32_t kDeviceWidth = 32;
constexpr uint16_t kExperts = 4;

// Added to all values of a product.
float BiasFor(ExpertLayerId layer, Matrix matrix, uint32_t expert) {
  const auto m = static_cast<float>(matrix);
  return 0.25F * (m + 1.0F) * static_cast<float>(expert) + 0.5F * layer.value;
}

// Two layers of experts whose weights are all one. The first adds biases to every product, the
// second to what down gives alone. Expert e lies in slot 3 - e.
class DeviceSlotsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const CopyForm form{.n_embd = kDeviceWidth, .n_ff = kDeviceWidth};
    for (uint16_t e = 0; e < 2 * kExperts; ++e) {
      catalog_.Add(ExpertLayerId{static_cast<uint16_t>(e / kExperts)},
                   ExpertId{static_cast<uint16_t>(e % kExperts)}, form, {});
    }
    const std::vector<DeviceInfo> found = FindDevices();
    const auto cpu = std::ranges::find(found, DeviceKind::kCpu, &DeviceInfo::kind);
    ASSERT_NE(cpu, found.end());
    device_.emplace(*ComputeDevice::Open(*cpu));
    link_.emplace(*device_);
  }

  void Create() {
    const DeviceBiases::Shape biases{.n_embd = kDeviceWidth,
                                     .n_expert = kExperts,
                                     .n_ff = std::vector<uint32_t>(has_.size(), kDeviceWidth),
                                     .has = has_};
    shape_.bias_bytes = DeviceBiases::BytesFor(*device_, biases);
    ASSERT_TRUE(LocalTransport::Supports(*device_, catalog_.forms[0], shape_));
    const DevicePools::Size sizes[] = {{.slots = kExperts, .of_piece = of_piece_}};
    experts_ = std::make_unique<Device>(
        std::make_unique<LocalTransport>(
            *link_, catalog_.forms,
            LocalTransport::Weights{
                .pools = *DevicePools::Allocate(*device_, catalog_.forms, sizes),
                .biases = *DeviceBiases::Load(*device_, biases, Values)},
            shape_),
        catalog_);
  }

  static Status Values(ExpertLayerId layer, Matrix matrix, std::span<std::byte> to) {
    std::vector<float> values;
    for (uint32_t e = 0; e < kExperts; ++e) {
      values.resize(values.size() + kDeviceWidth, BiasFor(layer, matrix, e));
    }
    EXPECT_EQ(to.size(), values.size() * sizeof(float));
    std::memcpy(to.data(), values.data(), to.size());
    return {};
  }

  // Experts 1 and 2 of a layer for `rows` rows, of which row r is r + 1 in one place and else 0.
  std::vector<float> Run(ExpertLayerId layer, uint32_t rows) {
    const std::vector<float> ones(size_t{kDeviceWidth} * kDeviceWidth, 1.0F);
    const auto* bytes = reinterpret_cast<const std::byte*>(ones.data());
    LayerPlan plan{.layer = layer, .n_rows = rows, .n_used = 2};
    for (const uint16_t e : {uint16_t{1}, uint16_t{2}}) {
      const ExpertKey key{.layer = layer, .expert = {e}};
      const SlotId slot{3U - e};
      EXPECT_TRUE(experts_->Wait(experts_->Fill(key, slot, {bytes, bytes, bytes})));
      plan.experts.push_back({.key = key,
                              .place = Place::kDevice,
                              .slot = slot,
                              .first_pair = (e - 1) * rows,
                              .n_pairs = rows});
      for (uint32_t r = 0; r < rows; ++r) plan.row_of.push_back(r);
    }
    std::vector<float> x(size_t{rows} * kDeviceWidth);
    for (uint32_t r = 0; r < rows; ++r) x[r * kDeviceWidth] = static_cast<float>(r + 1);
    std::vector<float> y(plan.row_of.size() * kDeviceWidth);
    EXPECT_TRUE(experts_->Begin({.plan = plan}, x.data(), y.data()));
    EXPECT_TRUE(experts_->Finish());
    return y;
  }

  void ExpectResults(ExpertLayerId layer, uint32_t rows) {
    const std::vector<float> y = Run(layer, rows);
    for (uint32_t pair = 0; pair < 2 * rows; ++pair) {
      const uint32_t expert = 1 + pair / rows;
      const auto bias = [&](Matrix m) {
        const bool has = !has_.empty() && has_[layer.value][static_cast<size_t>(m)];
        return has ? BiasFor(layer, m, expert) : 0.0F;
      };
      const auto product = static_cast<float>(pair % rows + 1);
      const float gate = product + bias(Matrix::kGate);
      const float joined = gate / (1.0F + std::exp(-gate)) * (product + bias(Matrix::kUp));
      const float expected = kDeviceWidth * joined + bias(Matrix::kDown);
      for (uint32_t i = 0; i < kDeviceWidth; ++i) {
        ASSERT_NEAR(y[pair * kDeviceWidth + i], expected, 1e-4F * expected) << pair << ", " << i;
      }
    }
  }

  ExpertCatalog catalog_;
  std::optional<ComputeDevice> device_;
  std::optional<DeviceLink> link_;
  LaunchShape shape_{.n_embd = kDeviceWidth, .n_ff = kDeviceWidth};
  std::vector<std::array<bool, kMatrices>> has_;
  uint64_t of_piece_ = DevicePools::kOnePiece;
  std::unique_ptr<Device> experts_;
};

TEST_F(DeviceSlotsTest, ComputesExpertsByTheirSlots) {
  ASSERT_NO_FATAL_FAILURE(Create());
  EXPECT_EQ(shape_.bias_bytes, 0U);
  for (const uint32_t rows : {1U, 3U}) ExpectResults(ExpertLayerId{0}, rows);
}

// Experts 1 and 2 are in slots 2 and 1: the same piece of three slots, different pieces of two.
TEST_F(DeviceSlotsTest, SlotsMayBeInSeveralPieces) {
  has_ = {{true, true, true}, {false, false, true}};
  for (const uint64_t of_piece : {1U, 2U, 3U}) {
    of_piece_ = of_piece;
    ASSERT_NO_FATAL_FAILURE(Create());
    for (const uint32_t rows : {1U, 3U}) {
      ExpectResults(ExpertLayerId{0}, rows);
      ExpectResults(ExpertLayerId{1}, rows);
    }
  }
}

TEST_F(DeviceSlotsTest, BytesOfPiecesHoldTheirSlots) {
  const CopyForm& form = catalog_.forms[0];
  const uint64_t one = DevicePools::BytesFor(form, 1) / 2;
  EXPECT_EQ(DevicePools::BytesFor(form, 0, 3), 0U);
  EXPECT_EQ(DevicePools::BytesFor(form, 3, 3), 4 * one);
  EXPECT_EQ(DevicePools::BytesFor(form, 4, 3), 6 * one);
  EXPECT_EQ(DevicePools::SlotsIn(7 * one - 1, form, DevicePools::kOnePiece), 5U);
  for (const uint64_t of_piece : {uint64_t{1}, uint64_t{3}, DevicePools::kOnePiece}) {
    for (uint64_t n = 0; n < 20; ++n) {
      const uint64_t slots = DevicePools::SlotsIn(n * one, form, of_piece);
      EXPECT_LE(DevicePools::BytesFor(form, slots, of_piece), n * one) << n;
      EXPECT_GT(DevicePools::BytesFor(form, slots + 1, of_piece), n * one) << n;
    }
  }
}

TEST_F(DeviceSlotsTest, AddsTheBiasesOfExpertsWhateverTheirSlots) {
  has_ = {{true, true, true}, {false, false, true}};
  ASSERT_NO_FATAL_FAILURE(Create());
  EXPECT_GE(shape_.bias_bytes, uint64_t{4} * kExperts * kDeviceWidth * sizeof(float));
  EXPECT_GT(LocalTransport::WorkBytes(shape_), shape_.bias_bytes);
  for (const uint32_t rows : {1U, 3U}) {
    ExpectResults(ExpertLayerId{0}, rows);
    ExpectResults(ExpertLayerId{1}, rows);
  }
}

TEST_F(DeviceSlotsTest, WhatASlotHoldsComesBack) {
  ASSERT_NO_FATAL_FAILURE(Create());
  std::array<std::vector<float>, kMatrices> sent;
  std::array<std::vector<float>, kMatrices> back;
  Device::Matrices from{};
  std::array<std::byte*, kMatrices> to{};
  for (size_t m = 0; m < kMatrices; ++m) {
    sent[m].assign(size_t{kDeviceWidth} * kDeviceWidth, static_cast<float>(m) + 0.5F);
    back[m].resize(sent[m].size());
    from[m] = reinterpret_cast<const std::byte*>(sent[m].data());
    to[m] = reinterpret_cast<std::byte*>(back[m].data());
  }
  const ExpertKey key{.layer = {1}, .expert = {3}};
  EXPECT_TRUE(experts_->Wait(experts_->Fill(key, SlotId{2}, from)));
  ASSERT_TRUE(experts_->Fetch(key, SlotId{2}, to));
  EXPECT_EQ(back, sent);
  ASSERT_TRUE(experts_->Fetch(key, SlotId{1}, to));
  EXPECT_NE(back, sent);
}

TEST_F(DeviceSlotsTest, BiasesThatCannotBeReadAreAnError) {
  const DeviceBiases::Shape biases{.n_embd = kDeviceWidth,
                                   .n_expert = kExperts,
                                   .n_ff = {kDeviceWidth},
                                   .has = {{true, true, true}}};
  const auto loaded = DeviceBiases::Load(
      *device_, biases, [](ExpertLayerId, Matrix matrix, std::span<std::byte>) -> Status {
        if (matrix == Matrix::kUp) return Fail(Errc::kIo, "a short file");
        return {};
      });
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, Errc::kIo);
}

}  // namespace
}  // namespace moestro
