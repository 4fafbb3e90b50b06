// SPDX-License-Identifier: MIT
// A device computes prompts of many rows as exactly as plain loops and the CPU do, or it does not
// compute them.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/number.h"
#include "compute/devices.h"
#include "core/kv_cells.h"
#include "forward/dense/dense_probes.h"
#include "tests/device/device_testing.h"
#include "tests/support/one_sequence_testing.h"
#include "tests/support/prompts_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

class DeviceAttention : public DeviceTest {};

TEST_F(DeviceAttention, HeadsOfAllShapesAreAsInPlainLoops) {
  const auto device = ComputeDevice::Open(info_);
  ASSERT_TRUE(device) << device.error().message;
  for (const KvType type : {KvType::kF16, KvType::kQ8}) {
    for (const uint32_t dim : {64U, 128U}) {
      for (const uint32_t group : {1U, 4U}) {
        for (const uint32_t rows : {1U, 33U, 100U, 300U}) {
          const AttentionShape shape{
              .n_head = 4 * group, .n_head_kv = 4, .dim_k = dim, .dim_v = dim, .kv_type = type};
          const auto difference = AttentionDifference(device->backend(), shape, rows);
          ASSERT_TRUE(difference) << difference.error().message;
          EXPECT_LE(*difference, kMostAttentionDifference)
              << NameOf(type) << ", heads of " << dim << ", " << group << " of them share keys, "
              << rows << " rows";
        }
      }
    }
  }
}

// With whatever matrix cores the device offers: where they are wrong, the CPU computes what they
// would.
class DeviceWithMatrixCores : public DeviceTest {
 protected:
  DeviceWithMatrixCores() { unsetenv("GGML_VK_DISABLE_COOPMAT"); }
};

TEST_F(DeviceWithMatrixCores, LongPromptsAreAsOnTheCpu) {
  const TinySpec spec{
      .arch = "olmoe", .type = "Q8_0", .layers = 2, .experts = 4, .used = 4, .ff = 256};
  const std::string model = WriteTinyModel(folder_.path(), spec);
  EngineOptions there = OnDevice(spec, PlaceMode::kGpuCentric);
  there.device.dense_on_cpu = false;
  there.device.vram = {256 * kMiB};
  EngineOptions experts_there = there;
  experts_there.device.dense_on_cpu = true;
  EngineOptions here = OnCpu();
  std::vector<std::vector<float>> logits;
  uint32_t n_vocab = 0;
  for (EngineOptions* options : {&here, &there, &experts_there}) {
    options->ctx = 128;
    options->chunk = 128;
    options->sequences = 1;
    const auto engine = OneSequence::Open(model, *options);
    ASSERT_TRUE(engine) << engine.error().message;
    n_vocab = (*engine)->engine().spec().n_vocab;
    const auto got = (*engine)->AppendAll(SeededTokens(100, n_vocab, 5));
    ASSERT_TRUE(got) << got.error().message;
    logits.push_back(*got);
  }
  for (const size_t run : {1U, 2U}) {
    ASSERT_EQ(logits[run].size(), logits[0].size());
    for (size_t at = 0; at < logits[0].size(); at += n_vocab) {
      const std::span row(logits[0].data() + at, n_vocab);
      for (size_t i = 0; i < n_vocab; ++i) {
        ASSERT_NEAR(logits[run][at + i], row[i], kEightBits * Deviation(row))
            << "run " << run << ", row " << at / n_vocab;
      }
    }
  }
}

}  // namespace
}  // namespace moestro
