// SPDX-License-Identifier: MIT
// The memory that the hosted engine plans for libllama's context, and when it is taken.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/number.h"
#include "base/system_limits.h"
#include "engine/append.h"
#include "load/open_engine.h"
#include "tests/support/llama_zoo_testing.h"
#include "tests/support/sanitized_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

constexpr uint32_t kLongContext = 131072;

TEST(HostedMemory, CellsAreCountedAndTakenWhenTheyAreWritten) {
  const TempFolder folder;
  const std::string model = WriteTinyModel(folder.path(), {.context = kLongContext});
  EngineOptions options;
  options.ctx = kLongContext;
  options.threads = 1;
  options.chunk = 64;
  options.engine = "native";
  const auto native = OpenEngine(model, options);
  ASSERT_TRUE(native) << native.error().message;
  options.engine = "hosted";
  const uint64_t before = ResidentMemory();
  const auto hosted = OpenEngine(model, options);
  ASSERT_TRUE(hosted) << hosted.error().message;
  const uint64_t kv = (*hosted)->facts().memory.kv;
  // libllama clears 12 KiB beside the cells.
  EXPECT_GE(kv, (*native)->facts().memory.kv);
  EXPECT_LE(kv, (*native)->facts().memory.kv + 64 * kKiB);
  EXPECT_LT(ResidentMemory(), before + kv / 2);
}

// libllama reserves 1.7 GiB to describe the graphs of such a chunk, and touches little of that.
TEST(HostedMemory, DescriptionsOfGraphsAreCountedAsTheyAreTouched) {
  if (kIsSanitized) GTEST_SKIP() << "a sanitizer takes memory of its own";
  const TempFolder folder;
  const std::string model = WriteZooModel(folder.path(), "kimi-k3", {.context = 1024});
  EngineOptions options;
  options.engine = "hosted";
  options.threads = 1;
  options.ctx = 1024;
  options.chunk = 512;
  const uint64_t before = ResidentMemory();
  const auto hosted = OpenEngine(model, options);
  ASSERT_TRUE(hosted) << hosted.error().message;
  Sequence sequence = (*hosted)->NewSequence();
  ASSERT_TRUE(Append(**hosted, sequence, std::vector<Token>(512, 7)));
  const MemoryPlan& plan = (*hosted)->facts().memory;
  const uint64_t taken = ResidentMemory() - before;
  EXPECT_GE(plan.work + plan.kv + plan.dense + plan.slots, taken);
  EXPECT_LE(plan.work, 192 * kMiB);
}

}  // namespace
}  // namespace moestro
