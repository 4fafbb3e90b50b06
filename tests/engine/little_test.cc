// SPDX-License-Identifier: MIT
// Tokens with fewer experts first, and with all where the model is not sure.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "native/native_engine.h"
#include "tests/support/decode_testing.h"
#include "tests/support/fault_reader_testing.h"
#include "tests/support/one_sequence_testing.h"
#include "tests/support/prompts_testing.h"
#include "tests/support/slow_reader_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

class LittleTest : public testing::Test {
 protected:
  static TinySpec Spec(const std::string& arch, uint32_t used, const std::string& type = "Q8_0") {
    return {.arch = arch, .type = type, .layers = 4, .experts = 16, .used = used};
  }
  std::string Model(const std::string& arch = "olmoe", uint32_t used = 4) {
    return WriteTinyModel(folder_.path(), Spec(arch, used));
  }
  static EngineOptions Options(double percent = 40.0, const LittleOptions& little = {}) {
    EngineOptions options;
    options.ctx = 128;
    options.threads = 2;
    options.cache = CacheSize{.percent = percent};
    options.little = little;
    return options;
  }

  struct Run {
    std::vector<float> logits;  // [token][n_vocab]
    LittleStats little;
    LossCounts losses;
  };
  // A prompt, if wanted, then tokens one by one.
  static Run Decode(const std::string& path, const EngineOptions& options, uint32_t prompt = 9) {
    Decoded run = DecodeGiven(path, options, {.prompts = {prompt}});
    EXPECT_TRUE(run.status) << run.status.error().message;
    EXPECT_EQ(run.stats.decode.tokens, 40U);
    return {std::move(run.logits), run.stats.little, run.stats.decode.losses};
  }

  TempFolder folder_;
};

// olmoe leaves the weights of the chosen as they are, mixtral's and qwen3moe's add up to one.
TEST_F(LittleTest, AloneItIsTheModelWithFewerExperts) {
  for (const char* arch : {"olmoe", "llama", "qwen2moe", "dots1"}) {
    const Run little = Decode(Model(arch, 4), Options(40.0, {.n_used = 2, .gamma = 0.0}), 0);
    EXPECT_EQ(little.little.tokens, 40U);
    EXPECT_EQ(little.little.again, 0U);
    const Run small = Decode(Model(arch, 2), Options(), 0);
    EXPECT_EQ(little.logits, small.logits) << arch;
    EXPECT_NE(little.logits, Decode(Model(arch, 4), Options(), 0).logits) << arch;
  }
}

TEST_F(LittleTest, NeverSureItIsExact) {
  const std::string model = Model();
  const Run exact = Decode(model, Options());
  const Run big = Decode(model, Options(40.0, {.n_used = 2, .gamma = 1.0}));
  EXPECT_EQ(big.logits, exact.logits);
  EXPECT_EQ(big.little.tokens, 0U);  // the first pass is left out
  // Made and discarded, it changes no bit either.
  const Run again = Decode(model, Options(40.0, {.n_used = 2, .fallback_share = 1.0}));
  EXPECT_EQ(again.logits, exact.logits);
  EXPECT_EQ(again.little.again, 40U);
}

TEST_F(LittleTest, WhatTheFirstPassSaysIsReadAhead) {
  EngineOptions options = Options(30.0, {.is_half = true, .fallback_share = 1.0});
  const Run run = Decode(Model(), options);
  EXPECT_GT(run.little.foreseen.recall(), 0.6);
  EXPECT_GT(run.little.prefetches, 50U);
  EXPECT_GT(run.little.used_prefetches, run.little.prefetches / 2);
  options.prefetch = 0;
  const Run without = Decode(Model(), options);
  EXPECT_EQ(without.little.prefetches, 0U);
  EXPECT_EQ(without.logits, run.logits);
}

TEST_F(LittleTest, TheSameTokensInEveryBudget) {
  const std::string model = Model();
  const LittleOptions little{.n_used = 2, .fallback_share = 0.4};
  const Run all = Decode(model, Options(100.0, little));
  EXPECT_GT(all.little.again, 8U);
  EXPECT_LT(all.little.again, 32U);
  for (const double percent : {25.0, 50.0}) {
    const Run run = Decode(model, Options(percent, little));
    EXPECT_EQ(run.logits, all.logits) << percent;
    EXPECT_EQ(run.little.again, all.little.again);
  }
}

TEST_F(LittleTest, WhatMissesAreAnsweredWithDoesNotDependOnTheDisk) {
  const std::string model = Model();
  const std::string low = WriteTinyModel(folder_.path(), Spec("olmoe", 4, "Q2_K"));
  for (const Misses misses : {Misses::kLow, Misses::kDrop}) {
    EngineOptions options = Options(40.0, {.n_used = 2, .misses = misses, .fallback_share = 0.3});
    options.low = low;
    options.lossy = {.t1 = 1.0, .t2 = 1.0};
    const Run first = Decode(model, options);
    EXPECT_GT(misses == Misses::kLow ? first.losses.low : first.losses.dropped, 10U);
    for (const uint32_t seed : {1U, 2U}) {
      options.wrap_reader = [seed](std::unique_ptr<BlockReader> inner) {
        return std::make_unique<SlowReader>(std::move(inner), seed);
      };
      options.prefetch = seed;
      const Run slow = Decode(model, options);
      options.prefetch = 1;
      if (seed == 1) {
        EXPECT_EQ(slow.logits, first.logits);
        EXPECT_EQ(slow.losses, first.losses);
      }
    }
  }
}

// Of five sequences some stay and some do not; each row gets logits once.
TEST_F(LittleTest, RowsOfAStepAreJudgedOneByOne) {
  EngineOptions options = Options(50.0, {.n_used = 2, .fallback_share = 0.5});
  options.sequences = 5;
  const std::string model = Model();
  auto engine = NativeEngine::Open(model, options);
  options.little = {};
  auto exact = NativeEngine::Open(model, options);
  ASSERT_TRUE(engine && exact);
  std::vector<Sequence> sequences;
  for (int i = 0; i < 5; ++i) sequences.push_back((*engine)->NewSequence());
  std::vector<Sequence> others;
  for (int i = 0; i < 5; ++i) others.push_back((*exact)->NewSequence());
  const std::vector<Token> tokens = SeededTokens(50, (*engine)->spec().n_vocab, 6);
  for (size_t step = 0; step < 10; ++step) {
    Batch batch;
    Batch little{.rows = {}, .little = {.n_used = 2}};
    for (size_t i = 0; i < 5; ++i) {
      BatchRow row{.sequence = sequences[i].id(),
                   .position = sequences[i].position(),
                   .token = tokens[5 * step + i],
                   .wants_logits = true};
      batch.rows.push_back(row);
      row.sequence = others[i].id();
      little.rows.push_back(row);
    }
    std::vector<size_t> order;
    std::vector<std::vector<float>> logits(5);
    const uint64_t again = (*engine)->stats().little.again;
    ASSERT_TRUE((*engine)->Step(batch, [&](size_t row, std::span<const float> l) {
      order.push_back(row);
      logits[row].assign(l.begin(), l.end());
    }));
    const size_t kept = 5 - ((*engine)->stats().little.again - again);
    ASSERT_EQ(order.size(), 5U);
    EXPECT_TRUE(
        std::ranges::is_sorted(order.begin(), order.begin() + static_cast<ptrdiff_t>(kept)));
    EXPECT_TRUE(std::ranges::is_sorted(order.begin() + static_cast<ptrdiff_t>(kept), order.end()));
    if (step > 0) continue;  // later ones see keys and values of other passes
    ASSERT_TRUE((*exact)->Step(little, [&](size_t row, std::span<const float> l) {
      const auto place = std::ranges::find(order, row) - order.begin();
      const bool is_same = std::ranges::equal(l, logits[row]);
      EXPECT_EQ(is_same, static_cast<size_t>(place) < kept) << row;
    }));
  }
  EXPECT_GT((*engine)->stats().little.again, 10U);
  EXPECT_LT((*engine)->stats().little.again, 40U);
  EXPECT_EQ((*engine)->stats().decode.tokens, 50U);
}

TEST_F(LittleTest, AFailedReadInEitherPassLeavesTheSequenceAsItWas) {
  const std::string model = Model();
  const LittleOptions little{.n_used = 2, .fallback_share = 1.0};
  const Run fine = Decode(model, Options(30.0, little), 0);
  EngineOptions options = Options(30.0, little);
  FaultReader* faults = nullptr;
  options.wrap_reader = [&](std::unique_ptr<BlockReader> inner) {
    auto reader = std::make_unique<FaultReader>(std::move(inner));
    faults = reader.get();
    return reader;
  };
  auto engine = OneSequence::Open(model, options);
  ASSERT_TRUE(engine) << engine.error().message;
  std::vector<float> logits;
  uint64_t failed = 0;
  for (const Token t : SeededTokens(40, (*engine)->spec().n_vocab, 4)) {
    const uint32_t before = (*engine)->position();
    for (const uint64_t nth : {1U, 9U, 15U, 21U}) {
      faults->SetPlan(FaultScript().ErrorFrom(faults->submitted() + nth, EIO));
      const auto broken = (*engine)->Append({&t, 1});
      faults->SetPlan({});
      (*engine)->engine().FinishReads();
      if (broken) {
        (*engine)->Rewind(before);
        continue;
      }
      ++failed;
      EXPECT_EQ(broken.error().code, Errc::kIo);
      EXPECT_EQ((*engine)->position(), before);
    }
    const auto good = (*engine)->Append({&t, 1});
    ASSERT_TRUE(good) << good.error().message;
    logits.append_range(*good);
  }
  EXPECT_GT(failed, 40U);
  EXPECT_EQ(logits, fine.logits);
}

TEST_F(LittleTest, AStopInEitherPassLeavesTheSequenceAsItWas) {
  const std::string model = Model();
  const LittleOptions little{.n_used = 2, .fallback_share = 1.0};
  const Run fine = Decode(model, Options(30.0, little), 0);
  auto engine = OneSequence::Open(model, Options(30.0, little));
  ASSERT_TRUE(engine);
  uint32_t stop_at = 0;  // experts of a row in the pass to be stopped; 0: none
  (*engine)->SetRouteObserver([&](const SeenRouting& seen) {
    if (seen.layer.value == 1 && seen.routing.n_used == stop_at) (*engine)->RequestStop();
  });
  std::vector<float> logits;
  for (const Token t : SeededTokens(40, (*engine)->spec().n_vocab, 4)) {
    const uint32_t before = (*engine)->position();
    for (const uint32_t used : {2U, 4U}) {
      stop_at = used;
      const auto stopped = (*engine)->Append({&t, 1});
      ASSERT_FALSE(stopped);
      EXPECT_EQ(stopped.error().code, Errc::kInterrupted);
      EXPECT_EQ((*engine)->position(), before);
    }
    stop_at = 0;
    const auto good = (*engine)->Append({&t, 1});
    ASSERT_TRUE(good) << good.error().message;
    logits.append_range(*good);
  }
  EXPECT_EQ(logits, fine.logits);
}

TEST_F(LittleTest, WhatIsNoLittleStepIsRefused) {
  const std::string model = Model();
  for (const LittleOptions& wrong : {LittleOptions{.n_used = 4}, LittleOptions{.n_used = 0},
                                     LittleOptions{.n_used = 2, .gamma = 1.1},
                                     LittleOptions{.n_used = 2, .misses = Misses::kLow}}) {
    const auto engine = NativeEngine::Open(model, Options(40.0, wrong));
    ASSERT_FALSE(engine);
    EXPECT_EQ(engine.error().code, Errc::kUsage);
  }
  auto engine = OneSequence::Open(model, Options());
  ASSERT_TRUE(engine);
  const auto code = [&](const LittleStep& little, RowKind kind) {
    const Batch batch{.rows = {{.sequence = (*engine)->sequence().id(), .token = 1, .kind = kind}},
                      .little = little};
    const Status status = (*engine)->engine().Step(batch);
    return status ? std::string("accepted") : status.error().message;
  };
  EXPECT_NE(code({.n_used = 4}, RowKind::kDecode).find("fewer than 4"), std::string::npos);
  EXPECT_NE(code({.n_used = 2, .misses = Misses::kLow}, RowKind::kDecode).find("low copies"),
            std::string::npos);
  EXPECT_NE(code({.n_used = 2}, RowKind::kPrompt).find("prompt"), std::string::npos);
  EXPECT_EQ((*engine)->position(), 0U);
  EXPECT_EQ(code({.n_used = 2}, RowKind::kDecode), "accepted");
}

}  // namespace
}  // namespace moestro
