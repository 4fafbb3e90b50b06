// SPDX-License-Identifier: MIT
// The simulator decides as the engine does: the same requests get the same answers and evict the
// same experts, in the same order, for every policy.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/format.h"
#include "decide/policy.h"
#include "engine/engine.h"
#include "engine/route_recorder.h"
#include "sim/replay.h"
#include "tests/support/prompts.h"

namespace moestro {
namespace {

constexpr const char* kDemo = MOESTRO_SOURCE_DIR "/models/stories-moe-q8_0.gguf";
constexpr size_t kTokens = 80;
constexpr int kSequences = 2;

std::string Line(ExpertKey key, Use use, const Placement& placed) {
  std::string line = Format("{}.{} {} {}", key.layer.value, key.expert.value,
                            use == Use::kDecode ? "decode" : "prefill",
                            placed.was == Placement::Was::kAbsent ? "miss" : "hit");
  if (placed.evicted) {
    line += Format(" evicts {}.{}", placed.evicted->layer.value, placed.evicted->expert.value);
  }
  return line;
}

class Agreement : public testing::TestWithParam<std::string> {};

TEST_P(Agreement, EngineAndSimulatorDoTheSame) {
  EngineOptions options;
  options.ctx = 128;
  options.threads = 2;
  options.policy = {.name = GetParam()};
  options.predictor = "none";  // what is fetched ahead in time depends on the disk
  options.cache = CacheSize{.percent = 30.0};
  const auto engine = Engine::Open(kDemo, options);
  ASSERT_TRUE(engine) << engine.error().message;
  auto empty = Trace::Create({.n_layer = (*engine)->spec().n_expert_layers(),
                              .n_expert = (*engine)->spec().router.n_expert,
                              .n_used = (*engine)->spec().router.n_used});
  ASSERT_TRUE(empty) << empty.error().message;
  RouteRecorder recorder(**engine, *std::move(empty));
  std::vector<std::string> did;
  (*engine)->SetRequestObserver([&](ExpertKey key, Use use, const Placement& placed) {
    did.push_back(Line(key, use, placed));
  });
  for (int s = 0; s < kSequences; ++s) {
    const Status recorded = recorder.Record(
        RandomTokens(kTokens, (*engine)->spec().n_vocab, static_cast<uint32_t>(s) + 1), 0);
    ASSERT_TRUE(recorded) << recorded.error().message;
  }
  std::vector<std::string> simulated;
  const auto result =
      Replay(recorder.trace(), {.slots = (*engine)->memory().n_slots,
                                .policy = {.name = GetParam()},
                                .observer = [&](ExpertKey key, Use use, const Placement& placed) {
                                  simulated.push_back(Line(key, use, placed));
                                }});
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(did, simulated);
  EXPECT_EQ(result->hits, (*engine)->stats().decode.hits);
  EXPECT_EQ(result->evictions, (*engine)->stats().decode.evictions);
  EXPECT_GT(result->evictions, 100U);
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const PolicyInfo& info : KnownPolicies()) names.emplace_back(info.name);
  return names;
}

std::string TestName(const testing::TestParamInfo<std::string>& policy) {
  std::string name = policy.param;
  std::erase(name, '-');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Policies, Agreement, testing::ValuesIn(Names()), TestName);

}  // namespace
}  // namespace moestro
