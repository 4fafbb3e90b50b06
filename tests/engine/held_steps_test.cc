// SPDX-License-Identifier: MIT
// Decode steps hold the threads of the team (Team::Hold) once their graphs are known. Bits do not
// show whether they do.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>

#include "engine/append.h"
#include "native/native_engine.h"
#include "tests/support/prompts_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

constexpr uint32_t kSteps = 12;

// Of F32: our nodes multiply so small matrices of this type on every processor. The first step
// builds its graphs. Steps with and without look-ahead take turns (PrefetchControl): each kind
// builds its own.
uint64_t HeldOf(const char* arch, uint32_t prefetch) {
  const TempFolder folder;
  const std::string model =
      WriteTinyModel(folder.path(), {.arch = arch, .type = "F32", .embd = 256, .ff = 256});
  EngineOptions options;
  options.ctx = 64;
  options.threads = 2;
  options.cache = CacheSize{.percent = 50.0};
  options.prefetch = prefetch;
  const auto engine = NativeEngine::Open(model, options);
  EXPECT_TRUE(engine) << engine.error().message;
  if (!engine) return 0;
  Sequence sequence = (*engine)->NewSequence();
  for (uint32_t i = 0; i < kSteps; ++i) {
    EXPECT_TRUE(Append(**engine, sequence, SeededTokens(1, 512, i)));
  }
  const RunStats& stats = (*engine)->stats();
  EXPECT_EQ(stats.decode.tokens + stats.prefill.tokens, kSteps);
  return stats.decode.serial_steps + stats.prefill.serial_steps;
}

TEST(HeldSteps, StepsAreHeldFromTheSecondOn) { EXPECT_EQ(HeldOf("qwen3moe", 0), kSteps - 1); }

TEST(HeldSteps, StepsThatLookAheadAreHeldToo) {
  const uint64_t held = HeldOf("qwen3moe", 1);
  EXPECT_GE(held, kSteps - 2);
  EXPECT_LT(held, kSteps);
}

// Latent attention has nodes of ggml between ours.
TEST(HeldSteps, GraphsWithNodesOfGgmlAreNotHeld) { EXPECT_EQ(HeldOf("deepseek2", 0), 0U); }

}  // namespace
}  // namespace moestro
