// SPDX-License-Identifier: MIT
// Lossy choices follow from the budget, not from what is measured on a machine.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/number.h"
#include "native/native_engine.h"
#include "tests/engine/lossy_testing.h"
#include "tests/support/sanitized_testing.h"
#include "tests/support/slow_reader_testing.h"

namespace moestro {
namespace {

using LossyBudgetTest = LossyTest;

// By --ram alone, whatever else this machine does at the moment: what the process holds already,
// how deep the disk was found to be, how many threads compute, and how late reads come.
TEST_F(LossyBudgetTest, ReproducibleChoicesFollowFromTheBudgetAlone) {
  if (kIsSanitized) GTEST_SKIP() << "a sanitizer's memory is more than a process's share";
  EngineOptions options = Options(Everything());
  options.cache.reset();
  options.ram_bytes = uint64_t{1} << 40;
  const auto whole = NativeEngine::Plan(model_, options);
  ASSERT_TRUE(whole) << whole.error().message;
  options.ram_bytes = whole->smallest + whole->all_experts / 3;
  options.io_depth = 4;
  const Run first = Decode(model_, options);
  EXPECT_GT(first.losses.missing, 0U);
  const std::vector<char> ballast(20 << 20, 'x');
  for (const uint32_t seed : {1U, 2U}) {
    EngineOptions other = options;
    other.io_depth = seed == 1 ? 32 : 0;
    other.threads = 2 + seed;
    other.reader = seed == 1 ? "pread" : "auto";
    other.wrap_reader = [seed](std::unique_ptr<BlockReader> inner) {
      return std::make_unique<SlowReader>(std::move(inner), seed);
    };
    const Run again = Decode(model_, other);
    EXPECT_EQ(again.logits, first.logits) << seed;
    EXPECT_EQ(again.losses, first.losses);
  }
  EXPECT_EQ(ballast.back(), 'x');
  // What the plan says repeats it, too, without a budget.
  const auto plan = NativeEngine::Plan(model_, options);
  ASSERT_TRUE(plan);
  ASSERT_GT(plan->repeating_cache, 0U);
  EngineOptions repeated = options;
  repeated.ram_bytes = 0;
  repeated.cache = CacheSize{.bytes = plan->repeating_cache};
  EXPECT_EQ(Decode(model_, repeated).logits, first.logits);
}

// Choices follow the steps of a prompt: their chunk is the model's own in every budget.
TEST_F(LossyBudgetTest, TheChunkOfALossyTextDoesNotFollowTheBudget) {
  if (kIsSanitized) GTEST_SKIP() << "a sanitizer's memory is more than a process's share";
  for (const bool is_lossy : {false, true}) {
    EngineOptions options = is_lossy ? Options(Everything()) : Options({}, false);
    options.ctx = 512;
    options.cache.reset();
    options.ram_bytes = uint64_t{1} << 40;
    const auto whole = NativeEngine::Plan(model_, options);
    ASSERT_TRUE(whole) << whole.error().message;
    options.ram_bytes = whole->smallest + kMiB;
    const auto engine = NativeEngine::Open(model_, options);
    ASSERT_TRUE(engine) << engine.error().message;
    EXPECT_EQ((*engine)->chunk(), is_lossy ? 512U : 256U);
  }
}

TEST_F(LossyBudgetTest, AProcessThatTakesMoreThanItsShareIsRefused) {
  if (kIsSanitized) GTEST_SKIP() << "a sanitizer's memory is more than a process's share";
  EngineOptions options = Options(Everything());
  options.cache.reset();
  options.ram_bytes = uint64_t{1} << 30;
  const std::vector<char> ballast(size_t{200} << 20, 'x');
  const auto refused = NativeEngine::Plan(model_, options);
  ASSERT_FALSE(refused);
  EXPECT_TRUE(refused.error().message.contains("--cache")) << refused.error().message;
  options.lossy.is_reproducible = false;
  EXPECT_TRUE(NativeEngine::Plan(model_, options));
  EXPECT_TRUE(NativeEngine::Plan(model_, Options({}, false)));
  EXPECT_EQ(ballast.back(), 'x');
}

}  // namespace
}  // namespace moestro
