// SPDX-License-Identifier: MIT
// The simulator decides as the engine does where experts are of several sizes and so in several
// pools of slots: the same requests get the same answers and evict the same experts, in the same
// order.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/engine/agreement_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

TinySpec Spec(const char* type) {
  return {.arch = "qwen3moe", .type = type, .layers = 8, .experts = 8, .used = 3, .ff = 256};
}

// Down matrices have more bits in half of the layers, as llama.cpp gives them.
std::string WriteMixed(const TempFolder& folder) {
  return WriteTinyModel(folder.path(), Spec("Q4_K_M"));
}

class AgreementInPools : public testing::TestWithParam<std::string> {};

TEST_P(AgreementInPools, OneSequence) {
  const TempFolder folder;
  const std::string model = WriteMixed(folder);
  for (const char* predictor : {"none", "next-router"}) {
    Recorded recorded(OptionsFor(GetParam(), predictor), 1, model);
    NativeEngine& engine = recorded.engine();
    ASSERT_GE(engine.slot_contents().size(), 2U);
    Sequence sequence = engine.NewSequence();
    for (const Token t : SeededTokens(80, engine.spec().n_vocab, 1)) {
      ASSERT_TRUE(Append(engine, sequence, {&t, 1}));
    }
    EXPECT_GT(engine.stats().decode.evictions, 100U);
    const ReplayResult result = ExpectSame(recorded, {.slots = engine.memory().n_slots,
                                                      .pool_slots = SlotsOf(engine),
                                                      .policy = {.name = GetParam()},
                                                      .predictor = {.name = predictor}});
    if (HasFailure()) return;
    EXPECT_EQ(result.hits, engine.stats().decode.hits);
    EXPECT_EQ(result.evictions, engine.stats().decode.evictions);
    EXPECT_EQ(result.prefetches, engine.stats().decode.prefetches);
  }
}

TEST_P(AgreementInPools, SeveralRowsAndPromptsBetweenThem) {
  const TempFolder folder;
  Recorded recorded(OptionsFor(GetParam(), "next-router", 60.0), 1, WriteMixed(folder));
  NativeEngine& engine = recorded.engine();
  Sequence sequence = engine.NewSequence();
  ASSERT_TRUE(Append(engine, sequence, SeededTokens(30, engine.spec().n_vocab, 3)));
  DecodeTogether(engine, 4);
  if (HasFailure()) return;
  ExpectSame(recorded, {.pool_slots = SlotsOf(engine),
                        .policy = {.name = GetParam()},
                        .predictor = {.name = "next-router"}});
}

// Two copies of experts in two pools each; low ones have one.
TEST_P(AgreementInPools, LossyChoices) {
  const TempFolder folder;
  const std::string model = WriteMixed(folder);
  const std::string low = WriteTinyModel(folder.path(), Spec("Q3_K"));
  EngineOptions options = OptionsFor(GetParam(), "next-router", 40.0);
  options.low = low;
  options.low_share = 0.3;
  options.lossy = {.t1 = 0.4, .t2 = 0.8, .drop_below = 0.05};
  Recorded recorded(options, 1, model);
  NativeEngine& engine = recorded.engine();
  DecodeTogether(engine, 1);
  if (HasFailure()) return;
  EXPECT_GT(engine.stats().decode.losses.low, 20U);
  std::vector<uint64_t> slots = SlotsOf(engine);
  ASSERT_EQ(slots.size(), engine.facts().pools.pools.size() + 1);
  slots.pop_back();
  ExpectSame(recorded, {.pool_slots = slots,
                        .policy = {.name = GetParam()},
                        .predictor = {.name = "next-router"},
                        .lossy = options.lossy,
                        .low_slots = engine.memory().n_low_slots,
                        .low_bytes = 1,
                        .router = engine.spec().router});
}

// A share of the experts gives each pool as many slots as `--cache` gives it in the engine.
TEST(PoolsOfATrace, ASharesSlotsAreTheEngines) {
  const TempFolder folder;
  const std::string model = WriteMixed(folder);
  for (const double percent : {25.0, 50.0, 100.0}) {
    const auto engine = NativeEngine::Open(model, OptionsFor("lru", "none", percent));
    ASSERT_TRUE(engine) << engine.error().message;
    const TraceInfo info{.model = (*engine)->id(), .pools = (*engine)->facts().pools};
    const auto n = static_cast<uint64_t>(percent / 100.0 * info.shape().experts());
    const auto slots = SlotsOfPools(info, {.slots = n});
    ASSERT_TRUE(slots) << slots.error().message;
    EXPECT_EQ(*slots, SlotsOf(**engine)) << percent;
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, AgreementInPools, testing::Values("lru", "lfu", "hobbit"));

}  // namespace
}  // namespace moestro
