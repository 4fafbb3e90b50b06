// SPDX-License-Identifier: MIT
// The simulator decides as the engine does, for random families, slots, policies, predictors,
// chunks and steps. MOESTRO_AGREEMENT_CASES=N: so many cases instead of a few.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/random_tokens.h"
#include "decide/ahead/predictors.h"
#include "engine/recorded_routing.h"
#include "tests/engine/agreement_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

// Of each kind.
uint32_t Cases() {
  constexpr uint32_t kFew = 24;
  const char* const wanted = std::getenv("MOESTRO_AGREEMENT_CASES");
  const int n = wanted != nullptr ? std::atoi(wanted) : 0;
  return (n > 0 ? static_cast<uint32_t>(n) : kFew) / 2;
}

struct RandomCase {
  explicit RandomCase(uint32_t seed) : random(seed) {
    std::vector<std::string> archs = TinyArchs();
    archs.emplace_back("switch");
    // In Q4_K_M the down matrices of half of the layers have more bits: two pools.
    const bool has_pools = OneIn(4);
    model = {.arch = archs[Below(archs.size())],
             .type = has_pools ? "Q4_K_M" : "Q8_0",
             .layers = static_cast<uint32_t>(3 + Below(4)),
             .experts = 8U << Below(3),
             .used = static_cast<uint32_t>(1 + Below(4)),
             .ff = has_pools ? 256U : 96U,
             .dense_layers = static_cast<uint32_t>(Below(2)),
             .seed = seed};
    policy = KnownPolicies()[Below(KnownPolicies().size())].name;
    options = OptionsFor(policy, OneIn(3) ? "none" : OneIn(2) ? "next-router" : "frequency");
    // Most have room for fewer than two layers.
    options.cache = CacheSize{
        .percent = 100.0 * std::min(1.0, static_cast<double>(1 + Below(12)) / 8.0 / model.layers)};
    // An encoder takes a source at once.
    const bool is_whole = OneIn(3) || model.arch == "switch";
    options.chunk = is_whole ? 0 : static_cast<uint32_t>(1 + Below(24));
    options.threads = static_cast<uint32_t>(1 + Below(3));
    depth = options.predictor == "next-router" ? 1 : static_cast<uint32_t>(Below(2));
    options.prefetch = 1;
  }
  uint64_t Below(uint64_t n) { return random() % n; }
  bool OneIn(uint64_t n) { return Below(n) == 0; }
  std::string text() const {
    return Format("{} {} of {} layers, {} of {} experts, {} {}, cache {:.1f} %, chunk {}",
                  model.arch, model.type, model.layers, model.used, model.experts, policy,
                  options.predictor, options.cache->percent, options.chunk);
  }

  std::mt19937 random;
  TinySpec model;
  std::string policy;
  EngineOptions options;
  uint32_t depth = 1;
};

// Slots that the engine refuses are no case. The least is a token's experts in each pool.
std::unique_ptr<NativeEngine> OpenWithRoom(RandomCase& of, const std::string& path) {
  for (;;) {
    auto engine = NativeEngine::Open(path, of.options);
    if (engine) return *std::move(engine);
    const double percent = of.options.cache->percent;
    EXPECT_LT(percent, 100.0) << engine.error().message;
    if (percent >= 100.0) return nullptr;
    of.options.cache = CacheSize{.percent = std::min(100.0, percent * 1.5)};
  }
}

// Returns the simulator's counts.
ReplayResult ExpectSameDecisions(const RandomCase& of, NativeEngine& engine, const Trace& trace,
                                 const std::vector<std::string>& did) {
  std::vector<std::string> simulated;
  const auto result =
      Replay(trace, {.pool_slots = SlotsOf(engine),
                     .policy = engine.facts().policy,
                     .predictor = {.name = of.options.predictor},
                     .observer = [&](ExpertKey key, Use use, const Placement& placed) {
                       simulated.push_back(Line(key, use, placed));
                     }});
  EXPECT_TRUE(result) << result.error().message;
  ExpectSameLines(did, simulated);
  return result.value_or(ReplayResult{});
}

void ExpectSameCounts(const ExpertCounts& simulated, const ExpertCounts& counts) {
  EXPECT_EQ(simulated.requests, counts.requests);
  EXPECT_EQ(simulated.hits, counts.hits);
  EXPECT_EQ(simulated.evictions, counts.evictions);
  EXPECT_EQ(simulated.row_requests, counts.row_requests);
  EXPECT_EQ(simulated.prefetches, counts.prefetches);
  EXPECT_EQ(simulated.used_prefetches, counts.used_prefetches);
}

// As `moestro trace` records it.
void RecordTexts(RandomCase& of) {
  const TempFolder folder;
  const std::unique_ptr<NativeEngine> engine =
      OpenWithRoom(of, WriteTinyModel(folder.path(), of.model));
  ASSERT_TRUE(engine);
  const TraceInfo info{.model = engine->id(),
                       .pools = engine->facts().pools,
                       .depth = std::min(of.depth, engine->facts().max_look_ahead),
                       .has_weights = true,
                       .has_prompt_steps = true,
                       .token_layers = engine->facts().token_layers};
  auto trace = Trace::Create(info);
  ASSERT_TRUE(trace) << trace.error().message;
  std::vector<std::string> did;
  engine->SetRequestObserver([&](ExpertKey key, Use use, const Placement& placed) {
    did.push_back(Line(key, use, placed));
  });
  engine->SetRoutingOverride([&](ExpertLayerId, Routing&, RoutedAhead&) { engine->FinishReads(); });
  RouteRecorder recorder(*engine, info, [&](const TraceToken& token) { return trace->Add(token); });
  const uint64_t texts = 1 + of.Below(3);
  for (uint64_t text = 0; text < texts; ++text) {
    const size_t prompt = of.OneIn(5) ? 1 : of.Below(40);
    std::vector<Token> tokens = SeededTokens(prompt + of.Below(16) + 4, engine->spec().n_vocab,
                                             static_cast<uint32_t>(of.random()));
    MakePrompt(engine->spec().encoder, std::max<size_t>(prompt, 2), tokens);
    const Status recorded = recorder.Record(tokens, prompt);
    ASSERT_TRUE(recorded) << recorded.error().message;
  }
  ExpectSameCounts(ExpectSameDecisions(of, *engine, *trace, did), engine->stats().decode);
}

// As a server's texts: steps with rows of several sequences, some of prompts.
void RecordSteps(RandomCase& of) {
  const TempFolder folder;
  const std::string path = WriteTinyModel(folder.path(), of.model);
  ASSERT_TRUE(OpenWithRoom(of, path));
  Recorded recorded(of.options, of.depth, path);
  NativeEngine& engine = recorded.engine();
  std::vector<Sequence> sequences;
  for (uint64_t i = 0; i < 1 + of.Below(4); ++i) sequences.push_back(engine.NewSequence());
  for (int step = 0; step < 8; ++step) {
    Batch batch;
    for (const Sequence& sequence : sequences) {
      if (!batch.rows.empty() && of.OneIn(3)) continue;
      const bool is_prompt = of.OneIn(2);
      const size_t n = is_prompt ? 1 + of.Below(12) : 1;
      batch.rows.append_range(
          RowsOf(sequence,
                 SeededTokens(n, engine.spec().n_vocab, static_cast<uint32_t>(of.random())),
                 is_prompt ? RowKind::kPrompt : RowKind::kDecode)
              .rows);
    }
    const Status done = engine.Step(batch);
    ASSERT_TRUE(done) << done.error().message;
  }
  ExpectSameDecisions(of, engine, recorded.trace(), recorded.did());
}

TEST(RandomAgreement, RecordedTexts) {
  for (uint32_t seed = 0; seed < Cases(); ++seed) {
    RandomCase of(seed);
    SCOPED_TRACE(Format("case {}: {}", seed, of.text()));
    RecordTexts(of);
    if (HasFailure()) return;
  }
}

TEST(RandomAgreement, StepsOfSeveralSequences) {
  for (uint32_t seed = 0; seed < Cases(); ++seed) {
    RandomCase of(1'000'000 + seed);
    if (of.model.arch == "switch") continue;  // sources have steps of their own
    SCOPED_TRACE(Format("case {}: {}", seed, of.text()));
    RecordSteps(of);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace moestro
