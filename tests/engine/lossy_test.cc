// SPDX-License-Identifier: MIT
// Cheaper misses: off they change no bit, on they depend on tokens and slots alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "decide/layer/lossy_chooser.h"
#include "native/native_engine.h"
#include "offline/quantize.h"
#include "tests/engine/lossy_testing.h"
#include "tests/support/fault_reader_testing.h"
#include "tests/support/one_sequence_testing.h"
#include "tests/support/patient_reader_testing.h"
#include "tests/support/prompts_testing.h"
#include "tests/support/slow_reader_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

const std::string kDemo = MOESTRO_SOURCE_DIR "/models/stories-moe-q8_0.gguf";

TEST_F(LossyTest, OffItChangesNoBit) {
  const Run exact = Decode(model_, Options({}, false));
  EXPECT_EQ(exact.losses, LossCounts{});
  const Run unused = Decode(model_, Options({.t1 = 1.0, .t2 = 1.0}));
  EXPECT_EQ(unused.logits, exact.logits);
  EXPECT_EQ(unused.losses, LossCounts{});
}

TEST_F(LossyTest, EachKnobIsSeenInTheCountsAndInTheLogits) {
  const Run exact = Decode(model_, Options({}, false));
  const Run low = Decode(model_, Options({.t1 = 0.2, .t2 = 1.0}));
  EXPECT_GT(low.losses.low, 0U);
  EXPECT_EQ(low.losses.skipped + low.losses.dropped + low.losses.replaced, 0U);
  EXPECT_NE(low.logits, exact.logits);
  const Run skipped = Decode(model_, Options({.t1 = 0.5, .t2 = 0.5}));
  EXPECT_GT(skipped.losses.skipped, 0U);
  EXPECT_EQ(skipped.losses.low, 0U);
  const Run dropped = Decode(model_, Options({.drop_below = 0.2}, false));
  EXPECT_GT(dropped.losses.dropped, 0U);
  EXPECT_EQ(dropped.losses.skipped + dropped.losses.low, 0U);
  const Run preferred = Decode(model_, Options({.prefer_resident = 0.2}, false));
  EXPECT_GT(preferred.losses.replaced, 0U);
  EXPECT_GT(preferred.hits, exact.hits);
}

TEST_F(LossyTest, APromptHasEverythingInFull) {
  const auto prompt_logits = [&](const EngineOptions& options) {
    auto engine = OneSequence::Open(model_, options);
    EXPECT_TRUE(engine) << engine.error().message;
    const auto logits = (*engine)->Append(SeededTokens(30, (*engine)->spec().n_vocab, 5));
    EXPECT_TRUE(logits);
    return std::vector<float>(logits->begin(), logits->end());
  };
  EXPECT_EQ(prompt_logits(Options(Everything())), prompt_logits(Options({}, false)));
}

// Delays change what is in memory when a layer is routed, and in which order prefetches end.
TEST_F(LossyTest, ReproducibleChoicesDoNotDependOnTheDisk) {
  for (const uint32_t prefetch : {0U, 1U, 3U}) {
    EngineOptions options = Options(Everything());
    options.prefetch = prefetch;
    const Run first = Decode(model_, options);
    EXPECT_GT(first.losses.low, 0U);
    EXPECT_GT(first.losses.upgrades, 0U);
    for (const uint32_t seed : {1U, 2U, 3U}) {
      options.wrap_reader = [seed](std::unique_ptr<BlockReader> inner) {
        return std::make_unique<SlowReader>(std::move(inner), seed);
      };
      options.threads = 1 + seed % 2;
      const Run slow = Decode(model_, options);
      EXPECT_EQ(slow.logits, first.logits) << "prefetch " << prefetch << ", seed " << seed;
      EXPECT_EQ(slow.losses, first.losses);
    }
  }
}

TEST_F(LossyTest, OpportunisticRunsUseWhatIsThere) {
  LossyOptions lossy = Everything();
  lossy.is_reproducible = false;
  const Run run = Decode(model_, Options(lossy));
  EXPECT_GT(run.losses.low + run.losses.skipped, 0U);
}

// The check reads through slots of its own: tokens, choices and counters are those of a run
// without.
TEST_F(LossyTest, ACheckChangesNothingElse) {
  LossyOptions lossy = Everything();
  lossy.upgrades = false;  // no step waits for upgrades, so the bytes read depend on the time
  EngineOptions plain = Options(lossy);
  plain.prefetch = 0;  // what is prefetched depends on timing, and so do its counters
  EngineOptions checking = plain;
  checking.check_every = 8;
  struct Seen {
    Run run;
    uint64_t requests = 0;
    PhaseStats stats;
    size_t checks = 0;
    size_t different = 0;
  };
  const auto decode = [&](const EngineOptions& options) {
    Seen seen;
    auto engine = OneSequence::Open(model_, options);
    EXPECT_TRUE(engine) << engine.error().message;
    if (!engine) return seen;
    (*engine)->engine().SetRequestObserver(
        [&](ExpertKey, Use, const Placement&) { ++seen.requests; });
    (*engine)->engine().SetCheckObserver(
        [&](std::span<const float> exact, std::span<const float> actual) {
          ++seen.checks;
          seen.different += std::ranges::equal(exact, actual) ? 0 : 1;
        });
    const uint32_t n_vocab = (*engine)->spec().n_vocab;
    // No prompt: it needs more experts than there are slots, and which of them stay depends on when
    // they are let go.
    for (const Token t : SeededTokens(40, n_vocab, 4)) {
      const auto logits = (*engine)->Append({&t, 1});
      EXPECT_TRUE(logits);
      if (logits) seen.run.logits.append_range(*logits);
    }
    seen.stats = (*engine)->stats().decode;
    return seen;
  };
  const Seen without = decode(plain);
  const Seen with = decode(checking);
  EXPECT_EQ(without.checks, 0U);
  EXPECT_EQ(with.checks, 5U);
  EXPECT_GT(with.different, 0U);
  EXPECT_EQ(with.run.logits, without.run.logits);
  EXPECT_EQ(with.requests, without.requests);
  EXPECT_EQ(with.stats.losses, without.stats.losses);
  EXPECT_EQ(with.stats.tokens, without.stats.tokens);
  EXPECT_EQ(with.stats.requests, without.stats.requests);
  EXPECT_EQ(with.stats.hits, without.stats.hits);
  EXPECT_EQ(with.stats.bytes_read, without.stats.bytes_read);
  EXPECT_EQ(with.stats.evictions, without.stats.evictions);
  EXPECT_EQ(with.stats.needed_bytes, without.stats.needed_bytes);
}

// The check has slots of its own, and takes no result of a read into the engine's.
TEST_F(LossyTest, AnEngineWithACheckEndsWithReadsUnderWay) {
  PatientDisk disk;
  EngineOptions options = Options({.drop_below = 0.2}, false);
  options.check_every = 1;
  options.wrap_reader = [&disk](std::unique_ptr<BlockReader> inner) {
    return std::make_unique<PatientReader>(std::move(inner), disk);
  };
  size_t checks = 0;
  auto engine = OneSequence::Open(model_, options);
  ASSERT_TRUE(engine) << engine.error().message;
  (*engine)->engine().SetCheckObserver(
      [&](std::span<const float>, std::span<const float>) { ++checks; });
  for (const Token token : SeededTokens(40, (*engine)->spec().n_vocab, 4)) {
    ASSERT_TRUE((*engine)->Append({&token, 1}));
    if (checks >= 4 && !disk.given.empty()) break;
  }
  EXPECT_GE(checks, 4U);
  ASSERT_FALSE(disk.given.empty()) << "no expert was read ahead";
  engine->reset();
  EXPECT_TRUE(disk.given.empty()) << "a read lands before its memory is gone";
}

// A disk that fails within a check, which comes before the step itself: nothing has changed.
TEST_F(LossyTest, AStepWhoseCheckCannotReadIsRepeatedAsIfItWereNew) {
  FaultReader* disk = nullptr;
  EngineOptions options = Options({.drop_below = 0.2}, false);
  options.check_every = 1;
  options.prefetch = 0;
  options.wrap_reader = [&disk](std::unique_ptr<BlockReader> inner) {
    auto faulty = std::make_unique<FaultReader>(std::move(inner));
    disk = faulty.get();
    return faulty;
  };
  size_t failures = 0;
  const auto decode = [&](bool fails) {
    auto engine = OneSequence::Open(model_, options);
    EXPECT_TRUE(engine) << engine.error().message;
    size_t checks = 0;
    (*engine)->engine().SetCheckObserver(
        [&](std::span<const float>, std::span<const float>) { ++checks; });
    std::vector<float> all;
    for (const Token token : SeededTokens(12, (*engine)->spec().n_vocab, 4)) {
      if (fails) {
        const size_t before = checks;
        disk->SetPlan(FaultScript().ErrorFrom(disk->submitted(), EIO));
        const auto failed = (*engine)->Append({&token, 1});
        disk->SetPlan({});
        EXPECT_FALSE(failed);
        EXPECT_EQ(failed.error().code, Errc::kIo);
        EXPECT_EQ(checks, before);
        ++failures;
      }
      const auto logits = (*engine)->Append({&token, 1});
      EXPECT_TRUE(logits);
      if (logits) all.append_range(*logits);
    }
    EXPECT_EQ(checks, 12U);
    return all;
  };
  const std::vector<float> without = decode(false);
  EXPECT_EQ(decode(true), without);
  EXPECT_EQ(failures, 12U);
}

// After a prompt, which is exact, the first token's check is the exact run's token to the bit.
TEST_F(LossyTest, ACheckIsExact) {
  EngineOptions options = Options({.t1 = 0.0, .t2 = 0.0});
  options.check_every = 1;
  std::vector<float> checked;
  const auto first = [&](const EngineOptions& of) {
    auto engine = OneSequence::Open(model_, of);
    EXPECT_TRUE(engine) << engine.error().message;
    (*engine)->engine().SetCheckObserver([&](std::span<const float> exact, std::span<const float>) {
      checked.assign(exact.begin(), exact.end());
    });
    const uint32_t n_vocab = (*engine)->spec().n_vocab;
    EXPECT_TRUE((*engine)->Append(SeededTokens(9, n_vocab, 3)));
    const auto logits = (*engine)->Append(SeededTokens(1, n_vocab, 4));
    EXPECT_TRUE(logits);
    return std::vector<float>(logits->begin(), logits->end());
  };
  const std::vector<float> lossy = first(options);
  const std::vector<float> exact = first(Options({}, false));
  EXPECT_NE(lossy, exact);
  EXPECT_EQ(checked, exact);
}

// The demo model, eight rows in a step.
class LossyRows : public LossyTest {
 protected:
  static constexpr size_t kRows = 8;
  static constexpr size_t kSteps = 12;

  void SetUp() override {
    const auto types = ParseLowTypes("q2_k");
    ASSERT_TRUE(types) << types.error().message;
    low_ = folder_.File("demo-low.gguf");
    const auto written = WriteLowCopies({.model = kDemo, .types = *types, .path = low_});
    ASSERT_TRUE(written) << written.error().message;
  }
  std::unique_ptr<NativeEngine> OpenDemo(const LossyOptions& lossy, double percent) const {
    EngineOptions options = Options(lossy);
    options.cache = CacheSize{.percent = percent};
    options.sequences = kRows;
    auto engine = NativeEngine::Open(kDemo, options);
    EXPECT_TRUE(engine) << engine.error().message;
    return engine ? *std::move(engine) : nullptr;
  }
  // The logits of all rows and steps; a token for each row is said by the step.
  static std::vector<float> Decode(NativeEngine& engine) {
    std::vector<Sequence> sequences;
    for (size_t i = 0; i < kRows; ++i) sequences.push_back(engine.NewSequence());
    std::vector<float> all;
    for (uint32_t step = 0; step < kSteps; ++step) {
      const std::vector<Token> tokens = SeededTokens(kRows, engine.spec().n_vocab, 50 + step);
      Batch batch;
      for (size_t i = 0; i < kRows; ++i) {
        batch.rows.push_back({.sequence = sequences[i].id(),
                              .position = sequences[i].position(),
                              .token = tokens[i],
                              .wants_logits = true});
      }
      const Status stepped = engine.Step(
          batch, [&](size_t, std::span<const float> logits) { all.append_range(logits); });
      EXPECT_TRUE(stepped) << stepped.error().message;
    }
    return all;
  }
};

TEST_F(LossyRows, TheMostDemandingRowDecidesForAll) {
  const LossyOptions lossy{.t1 = 0.4, .t2 = 0.8};
  const auto engine = OpenDemo(lossy, 40.0);
  ASSERT_NE(engine, nullptr);
  LossyChooser chooser(lossy, engine->spec().router, true, nullptr);
  std::vector<Need> needs;  // [row][K]
  Routing routing;
  engine->SetRouteObserver([&](const SeenRouting& seen) {
    routing = seen.routing;
    needs = chooser.NeedsOf(seen.layer, seen.routing, seen.kinds).needs;
  });
  size_t disputed = 0;  // experts of which rows want different things, and that were absent
  size_t skipped = 0;
  engine->SetPlanObserver([&](const LayerPlan& plan) {
    const auto strongest = [&](ExpertId expert) {
      Need most = Need::kDrop;
      Need least = Need::kOwn;
      for (size_t i = 0; i < needs.size(); ++i) {
        if (routing.experts[i] != expert) continue;
        most = std::min(most, needs[i]);
        least = std::max(least, needs[i]);
      }
      return std::pair(most, most != least);
    };
    for (const PlannedExpert& expert : plan.experts) {
      const auto [need, differs] = strongest(expert.key.expert);
      const bool is_low = expert.key.copy == kLowCopy;
      EXPECT_FALSE(is_low && need == Need::kOwn);
      if (!expert.is_present) {
        EXPECT_EQ(need, is_low ? Need::kLow : Need::kOwn);
        disputed += differs ? 1 : 0;
      }
      // All its rows, and with this copy.
      size_t rows = 0;
      for (size_t i = 0; i < needs.size(); ++i) {
        if (routing.experts[i] != expert.key.expert) continue;
        EXPECT_GE(plan.pair_of[i], expert.first_pair);
        EXPECT_LT(plan.pair_of[i], expert.first_pair + expert.n_pairs);
        ++rows;
      }
      EXPECT_EQ(rows, expert.n_pairs);
    }
    for (const SkippedExpert& expert : plan.skipped) {
      EXPECT_EQ(strongest(expert.expert).first, Need::kSkip);
      for (size_t i = 0; i < needs.size(); ++i) {
        if (routing.experts[i] == expert.expert) {
          EXPECT_EQ(plan.pair_of[i], kNoPair);
        }
      }
      ++skipped;
    }
  });
  Decode(*engine);
  EXPECT_GT(disputed, 20U);
  EXPECT_GT(skipped, 0U);
  EXPECT_GT(engine->stats().decode.losses.low, 20U);
}

// The copies that were planned, put into an engine that has both of every expert in memory.
TEST_F(LossyRows, EveryRowIsComputedWithThePlannedCopy) {
  const auto lossy = OpenDemo({.t1 = 0.4, .t2 = 1.0}, 40.0);
  ASSERT_NE(lossy, nullptr);
  std::vector<std::map<ExpertId, CopyId>> planned;  // [step * layers + layer]
  lossy->SetPlanObserver([&](const LayerPlan& plan) {
    planned.emplace_back();
    for (const PlannedExpert& e : plan.experts) planned.back()[e.key.expert] = e.key.copy;
  });
  const std::vector<float> logits = Decode(*lossy);
  EXPECT_GT(lossy->stats().decode.losses.low, 20U);

  const auto forced = OpenDemo({.t1 = 1.0, .t2 = 1.0}, 200.0);
  ASSERT_NE(forced, nullptr);
  size_t at = 0;
  forced->SetPlanObserver([&](const LayerPlan&) { ++at; });
  forced->SetCopyOverride([&](ExpertKey own) { return planned.at(at).at(own.expert); });
  EXPECT_EQ(Decode(*forced), logits);
  forced->SetCopyOverride({});
  EXPECT_NE(Decode(*forced), logits);
}

TEST_F(LossyTest, BadSettingsAreRefusedBeforeAnythingIsLoaded) {
  const auto refused = [&](const EngineOptions& options, const std::string& part) {
    const auto engine = NativeEngine::Open(model_, options);
    ASSERT_FALSE(engine) << part;
    EXPECT_NE(engine.error().message.find(part), std::string::npos) << engine.error().message;
  };
  refused(Options({.t1 = 0.9, .t2 = 0.5}), "above --t2");
  refused(Options({.t1 = 0.5}, false), "--low");
  refused(Options({.t1 = -0.5}), "--t1");
  refused(Options({.drop_below = 2.0}), "--drop-below");
  refused(Options({.prefer_resident = 1.5}), "--prefer-resident");
  refused(Options({.importance = "luck"}), "luck");
  refused(Options({.importance = "score-norm"}), "moestro profile");
  EngineOptions options = Options();
  options.low_share = 1.0;
  refused(options, "--low-share");
  options = Options();
  options.low = folder_.File("none.gguf");
  refused(options, "none.gguf");
  options.low = WriteTinyModel(folder_.path(), {.arch = "qwen3moe", .layers = 4, .experts = 8});
  refused(options, "experts");
}

}  // namespace
}  // namespace moestro
