// SPDX-License-Identifier: MIT
// Steps of 1 to 32 decode rows: the bits of a run with everything in memory, each row as alone,
// nothing changed by a disk that fails or by a stop, counted by expert and by row.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/append.h"
#include "native/native_engine.h"
#include "tests/support/fault_reader_testing.h"
#include "tests/support/prompts_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

constexpr uint32_t kLayers = 3;
constexpr uint32_t kMostRows = 32;
constexpr uint32_t kVocab = 512;

// An engine and its sequences, which take a token each in a step. Every third one is a fork of the
// one before it and shares its cells.
class SideBySide {
 public:
  SideBySide(const std::string& path, const EngineOptions& options, uint32_t n) {
    auto engine = NativeEngine::Open(path, options);
    EXPECT_TRUE(engine) << engine.error().message;
    engine_ = *std::move(engine);
    for (uint32_t i = 0; i < n; ++i) {
      if (i % 3 == 2) {
        sequences_.push_back(sequences_.back().Fork());
        continue;
      }
      sequences_.push_back(engine_->NewSequence());
      EXPECT_TRUE(Append(*engine_, sequences_.back(), SeededTokens(4 + i, kVocab, 100 + i)));
    }
    engine_->stats() = {};
  }

  NativeEngine& engine() { return *engine_; }
  const PhaseStats& decode() const { return engine_->stats().decode; }
  Sequence& sequence(size_t i) { return sequences_[i]; }
  std::vector<uint32_t> positions() const {
    std::vector<uint32_t> all;
    for (const Sequence& s : sequences_) all.push_back(s.position());
    return all;
  }
  Batch RowsWith(std::span<const Token> tokens) const {
    Batch batch;
    for (size_t i = 0; i < sequences_.size(); ++i) {
      batch.rows.push_back({.sequence = sequences_[i].id(),
                            .position = sequences_[i].position(),
                            .token = tokens[i],
                            .wants_logits = true});
    }
    return batch;
  }
  static std::vector<Token> TokensOf(uint32_t step) {
    return SeededTokens(kMostRows, kVocab, 1000 + step);
  }
  // [row][n_vocab], or why not. Which tokens, is said by the number.
  Result<std::vector<float>> Step(uint32_t step) {
    std::vector<float> all;
    TRY_STATUS(engine_->Step(RowsWith(TokensOf(step)), [&](size_t, std::span<const float> logits) {
      all.append_range(logits);
    }));
    return all;
  }
  // Of steps first, first + 1, ...
  std::vector<float> Steps(uint32_t first, uint32_t n) {
    std::vector<float> all;
    for (uint32_t step = first; step < first + n; ++step) {
      const auto logits = Step(step);
      EXPECT_TRUE(logits) << logits.error().message;
      if (logits) all.append_range(*logits);
    }
    return all;
  }

 private:
  std::unique_ptr<NativeEngine> engine_;
  std::vector<Sequence> sequences_;
};

class BatchTest : public testing::Test {
 protected:
  std::string Model(const std::string& type = "Q8_0") const {
    return WriteTinyModel(folder_.path(),
                          {.arch = "qwen3moe", .type = type, .layers = kLayers, .experts = 16});
  }
  // A quarter of 48 experts: fewer than 16 or more rows want of one layer.
  static EngineOptions Options(double percent = 25.0) {
    EngineOptions options;
    options.ctx = 64;
    options.sequences = kMostRows;
    options.threads = 2;
    options.cache = CacheSize{.percent = percent};
    return options;
  }
  EngineOptions WithFaults(uint32_t chunk) {
    EngineOptions options = Options();
    options.chunk = chunk;
    options.wrap_reader = [this](std::unique_ptr<BlockReader> inner) {
      auto faulty = std::make_unique<FaultReader>(std::move(inner));
      disk_ = faulty.get();
      return faulty;
    };
    return options;
  }

  TempFolder folder_;
  FaultReader* disk_ = nullptr;  // owned by the engine
};

// K-quants, too: the same rows take the same products.
TEST_F(BatchTest, AQuarterOfTheExpertsGivesTheBitsOfAllInMemory) {
  for (const std::string type : {"Q8_0", "Q4_K_M"}) {
    const std::string path = Model(type);
    for (const uint32_t n : {1U, 2U, 4U, 8U, 16U, kMostRows}) {
      SideBySide all(path, Options(100.0), n);
      ASSERT_TRUE(all.engine().Preload());
      const std::vector<float> expected = all.Steps(0, 6);
      EXPECT_EQ(all.decode().misses, 0U);
      for (const std::string predictor : {"none", "next-router"}) {
        EngineOptions options = Options();
        options.predictor = predictor;
        SideBySide quarter(path, options, n);
        EXPECT_EQ(quarter.Steps(0, 6), expected) << type << ", " << n << " rows, " << predictor;
        EXPECT_GT(quarter.decode().misses, 0U);
      }
    }
  }
}

// What decision 7 promises of all types but K-quants.
TEST_F(BatchTest, ARowOfManyHasTheBitsOfTheRowAlone) {
  const std::string path = Model();
  SideBySide together(path, Options(), kMostRows);
  SideBySide alone(path, Options(), kMostRows);
  for (uint32_t step = 0; step < 4; ++step) {
    const auto expected = together.Step(step);
    ASSERT_TRUE(expected) << expected.error().message;
    const std::vector<Token> tokens = SideBySide::TokensOf(step);
    for (uint32_t i = 0; i < kMostRows; ++i) {
      const auto logits = Append(alone.engine(), alone.sequence(i), {&tokens[i], 1});
      ASSERT_TRUE(logits) << logits.error().message;
      EXPECT_TRUE(std::ranges::equal(*logits, std::span(*expected).subspan(i * kVocab, kVocab)))
          << "row " << i << " of step " << step;
    }
  }
}

// Every second row, backwards: with other neighbours a row's result stays the same.
TEST_F(BatchTest, ARowDoesNotSeeItsNeighboursOrItsPlace) {
  const std::string path = Model();
  SideBySide engine(path, Options(), kMostRows);
  SideBySide other(path, Options(), kMostRows);
  const auto expected = engine.Step(0);
  ASSERT_TRUE(expected) << expected.error().message;
  // Every second row, the last one first.
  const Batch all = other.RowsWith(SideBySide::TokensOf(0));
  Batch some;
  std::vector<size_t> rows;
  for (size_t i = 0; i < kMostRows; i += 2) rows.insert(rows.begin(), i);
  for (const size_t row : rows) some.rows.push_back(all.rows[row]);
  size_t seen = 0;
  ASSERT_TRUE(other.engine().Step(some, [&](size_t row, std::span<const float> logits) {
    EXPECT_TRUE(
        std::ranges::equal(logits, std::span(*expected).subspan(rows[row] * kVocab, kVocab)));
    ++seen;
  }));
  EXPECT_EQ(seen, rows.size());
}

// Wherever the disk begins to fail, and with chunk 8 in whichever part of a step.
TEST_F(BatchTest, AFailedReadEndsTheStepAndChangesNoSequence) {
  const std::string path = Model();
  for (const uint32_t n : {2U, 8U, kMostRows}) {
    const uint32_t chunk = n == kMostRows ? 8 : 512;
    EngineOptions options = Options(100.0);
    options.chunk = chunk;
    const std::vector<float> expected = SideBySide(path, options, n).Steps(0, 2);
    int failed = 0;
    for (uint64_t nth = 0; nth < 150; nth += 29) {
      SideBySide rows(path, WithFaults(chunk), n);
      const std::vector<uint32_t> before = rows.positions();
      disk_->SetPlan(FaultScript().ErrorFrom(disk_->submitted() + nth, EIO));
      const auto step = rows.Step(7);
      disk_->SetPlan({});
      if (step) break;  // it reads no more than that
      ++failed;
      EXPECT_EQ(step.error().code, Errc::kIo) << step.error().message;
      EXPECT_EQ(rows.positions(), before);
      EXPECT_EQ(rows.decode().tokens, 0U);
      EXPECT_EQ(rows.Steps(0, 2), expected) << n << " rows, read " << nth;
      EXPECT_EQ(rows.decode().tokens, 2 * n);
    }
    EXPECT_GT(failed, 1) << n;
  }
}

TEST_F(BatchTest, OneErrorIsRetriedAndChangesNothing) {
  const std::string path = Model();
  const std::vector<float> expected = SideBySide(path, Options(100.0), 8).Steps(0, 2);
  for (const uint64_t nth : {0U, 1U, 5U, 20U}) {
    SideBySide rows(path, WithFaults(512), 8);
    disk_->SetPlan(FaultScript().ErrorAt(disk_->submitted() + nth, EIO));
    EXPECT_EQ(rows.Steps(0, 2), expected) << nth;
  }
}

// Asked to stop when a layer has been routed, of the step's first chunk or of a later one.
TEST_F(BatchTest, AStopEndsTheStepAndChangesNoSequence) {
  const std::string path = Model();
  for (const uint32_t n : {2U, 8U, kMostRows}) {
    EngineOptions options = Options();
    options.chunk = 8;
    SideBySide undisturbed(path, options, n);
    SideBySide rows(path, options, n);
    uint32_t steps = 0;
    for (uint32_t nth = 0; nth + 1 < kLayers * ((n + 7) / 8); ++nth) {
      const std::vector<uint32_t> before = rows.positions();
      const uint64_t counted = rows.decode().tokens;
      uint32_t layers = 0;
      rows.engine().SetRouteObserver([&](const SeenRouting&) {
        if (layers++ == nth) rows.engine().RequestStop();
      });
      const auto stopped = rows.Step(90);
      rows.engine().SetRouteObserver({});
      ASSERT_FALSE(stopped) << n << " rows, layer " << nth;
      EXPECT_EQ(stopped.error().code, Errc::kInterrupted);
      EXPECT_EQ(rows.positions(), before);
      EXPECT_EQ(rows.decode().tokens, counted);
      EXPECT_EQ(rows.Steps(steps, 1), undisturbed.Steps(steps, 1)) << n << " rows, layer " << nth;
      ++steps;
    }
  }
}

// An expert that several rows want is one use and one read; each row's use of it counts, too.
TEST_F(BatchTest, StatisticsCountAnExpertOnceAndEachOfItsRows) {
  const std::string path = Model();
  for (const uint32_t n : {1U, 2U, 8U, kMostRows}) {
    for (const double percent : {25.0, 100.0}) {
      EngineOptions options = Options(percent);
      options.predictor = "none";
      SideBySide rows(path, options, n);
      const bool has_all = percent == 100.0;
      if (has_all) {
        ASSERT_TRUE(rows.engine().Preload());
      }
      rows.engine().stats() = {};
      uint64_t experts = 0;
      uint64_t pairs = 0;
      rows.engine().SetPlanObserver([&](const LayerPlan& plan) {
        std::set<ExpertKey> once;
        for (const PlannedExpert& expert : plan.experts) {
          once.insert(expert.key);
          pairs += expert.n_pairs;
        }
        EXPECT_EQ(once.size(), plan.experts.size());
        experts += once.size();
      });
      rows.Steps(0, 5);
      const PhaseStats& decode = rows.decode();
      EXPECT_EQ(decode.tokens, 5 * n);
      EXPECT_EQ(decode.requests, experts);
      EXPECT_EQ(decode.requests, decode.hits + decode.misses);
      EXPECT_EQ(decode.row_requests, pairs);
      EXPECT_EQ(decode.row_requests,
                uint64_t{5} * n * kLayers * rows.engine().spec().router.n_used);
      EXPECT_GE(decode.row_hits, decode.hits);
      EXPECT_LE(decode.row_hits, decode.row_requests);
      // A row shares nothing with itself; eight of 2 from 16 experts do.
      EXPECT_EQ(decode.requests == decode.row_requests, n == 1);
      EXPECT_EQ(decode.row_hits == decode.row_requests, has_all);
      // Bytes are of experts, not of rows.
      const uint64_t bytes = rows.engine().place_of({.layer = {0}, .expert = {0}}).bytes;
      EXPECT_EQ(decode.needed_bytes, decode.misses * bytes);
    }
  }
}

}  // namespace
}  // namespace moestro
