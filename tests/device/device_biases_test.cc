// SPDX-License-Identifier: MIT
// Experts with biases on a device: as on the CPU, of which tests/engine/family_test.cc shows that
// biases are felt there.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/number.h"
#include "base/text.h"
#include "model/model_file.h"
#include "native/native_engine.h"
#include "tests/device/device_testing.h"
#include "tests/support/float_model_testing.h"

namespace moestro {
namespace {

class DeviceBiasTest : public DeviceTest {
 protected:
  static FloatShape Biased(Activation activation) {
    FloatShape shape;
    shape.layers = 6;
    shape.activation = activation;
    shape.has_expert_biases = true;
    return shape;
  }
  std::string Write(const FloatShape& shape) const {
    const std::string path = folder_.File("biased.gguf");
    FloatModel(shape, 5).Write(path);
    return path;
  }
  static Result<std::unique_ptr<NativeEngine>> Open(const std::string& path,
                                                    const FloatShape& shape,
                                                    const EngineOptions& options) {
    const Family family = SyntheticFamily(shape);
    TRY(ModelFile model, ModelFile::Open(path, {&family, 1}));
    return NativeEngine::Open(std::move(model), options);
  }
  EngineOptions There(PlaceMode place) {
    EngineOptions options = OnDevice({}, place);
    options.device.vram = {256 * kMiB};
    return options;
  }
};

// Prompts of two rows, steps of one.
TEST_F(DeviceBiasTest, EveryActivationIsAsOnTheCpu) {
  for (const Activation activation :
       {Activation::kSwiglu, Activation::kGeglu, Activation::kSwigluOai}) {
    const FloatShape shape = Biased(activation);
    const std::string model = Write(shape);
    const Run cpu = Decode(Open(model, shape, OnCpu()), 1);
    for (const bool dense_on_cpu : {true, false}) {
      EngineOptions options = There(PlaceMode::kGpuCentric);
      options.device.dense_on_cpu = dense_on_cpu;
      const Run device = Decode(Open(model, shape, options), 1);
      ExpectNear(device, cpu, kElevenBits,
                 Format("activation {}, dense on the CPU: {}", static_cast<int>(activation),
                        dense_on_cpu));
      EXPECT_EQ(device.device.on_device + device.device.copied, device.device.experts);
      EXPECT_EQ(device.device.failures, 0U);
      EXPECT_EQ(device.device.layers_there > 0, !dense_on_cpu);
    }
  }
}

TEST_F(DeviceBiasTest, WidthsMayDifferBetweenLayers) {
  FloatShape shape = Biased(Activation::kSwigluOai);
  shape.odd_ff = 64;
  const std::string model = Write(shape);
  const Run device = Decode(Open(model, shape, There(PlaceMode::kGpuCentric)), 1);
  ExpectNear(device, Decode(Open(model, shape, OnCpu()), 1), kElevenBits, "two widths");
  EXPECT_GT(device.device.experts, 0U);
  EXPECT_EQ(device.device.failures, 0U);
}

// Room for the biases and half of the experts: these change their slots all the time.
TEST_F(DeviceBiasTest, BiasesCountAndFollowTheirExperts) {
  const FloatShape shape = Biased(Activation::kSwigluOai);
  const std::string model = Write(shape);
  const uint64_t expert = 3 * uint64_t{shape.embd} * shape.ff * sizeof(float);
  // As much as an expert: one slot fewer.
  const uint64_t biases =
      uint64_t{shape.layers} * shape.experts * (2 * shape.ff + shape.embd) * sizeof(float);
  ASSERT_EQ(biases, expert);
  const LaunchShape work{.n_embd = shape.embd, .n_ff = shape.ff, .bias_bytes = biases};
  constexpr uint64_t kSlots = 24;
  EngineOptions options = There(PlaceMode::kGpuCentric);
  options.device.vram = {LocalTransport::WorkBytes(work) + (kSlots + 1) * expert};
  const Run device = Decode(Open(model, shape, options), 4);
  ExpectNear(device, Decode(Open(model, shape, OnCpu()), 4), kElevenBits, "few slots");
  ASSERT_EQ(device.memory.devices.size(), 1U);
  EXPECT_EQ(device.memory.devices[0].slots, kSlots);
  EXPECT_EQ(device.memory.devices[0].bytes, options.device.vram.front());
  EXPECT_GT(device.device.copied, 0U);
  EXPECT_GT(device.device.on_device, 0U);
}

// Whichever device an expert is copied to, its biases are there.
TEST_F(DeviceBiasTest, EachOfTwoDevicesHasAllBiases) {
  if (!has_two()) GTEST_SKIP() << "there is one device";
  const FloatShape shape = Biased(Activation::kSwigluOai);
  const std::string model = Write(shape);
  const uint64_t expert = 3 * uint64_t{shape.embd} * shape.ff * sizeof(float);
  // Biases take as much as an expert.
  const LaunchShape work{.n_embd = shape.embd, .n_ff = shape.ff, .bias_bytes = expert};
  constexpr uint64_t kSlots = 12;
  EngineOptions options = OnTwo({}, PlaceMode::kGpuCentric);
  options.device.vram = {LocalTransport::WorkBytes(work) + (kSlots + 1) * expert};
  const Run devices = Decode(Open(model, shape, options), 4);
  ExpectNear(devices, Decode(Open(model, shape, OnCpu()), 4), kElevenBits, "two devices");
  ASSERT_EQ(devices.memory.devices.size(), 2U);
  for (size_t d = 0; d < 2; ++d) {
    EXPECT_EQ(devices.memory.devices[d].slots, kSlots) << d;
    EXPECT_EQ(devices.memory.devices[d].bytes, options.device.vram.front()) << d;
    EXPECT_GT(devices.device.each.at(d).computed(), 0U) << d;
  }
}

// A budget that holds the biases and no expert.
TEST_F(DeviceBiasTest, TooLittleRoomIsNamed) {
  const FloatShape shape = Biased(Activation::kSwiglu);
  EngineOptions options = There(PlaceMode::kGpuCentric);
  const LaunchShape work{.n_embd = shape.embd, .n_ff = shape.ff};
  options.device.vram = {LocalTransport::WorkBytes(work) + 16 * kKiB};
  const auto small = Open(Write(shape), shape, options);
  ASSERT_FALSE(small);
  EXPECT_EQ(small.error().code, Errc::kInvalidRequest);
  EXPECT_NE(small.error().message.find("raise --vram"), std::string::npos) << small.error().message;
}

}  // namespace
}  // namespace moestro
