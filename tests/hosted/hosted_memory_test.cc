// SPDX-License-Identifier: MIT
// The memory that the hosted engine plans for libllama's context, and when it is taken.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "base/number.h"
#include "base/system_limits.h"
#include "load/open_engine.h"
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

}  // namespace
}  // namespace moestro
