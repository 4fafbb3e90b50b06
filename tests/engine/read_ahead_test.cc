// SPDX-License-Identifier: MIT
// What the disk is given at a time: all of a prompt's next layer while the dense part computes, and
// else as many reads as were asked for, or measured.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/plan/io_depth.h"
#include "store/block_reader.h"
#include "tests/support/fault_reader_testing.h"
#include "tests/support/one_sequence_testing.h"
#include "tests/support/patient_reader_testing.h"
#include "tests/support/prompts_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

// While experts run the queue gives the disk one read at a time. So what it has beyond that when
// the router has been computed was given to it before the dense part.
TEST(ReadAhead, APromptsReadsAreAtTheDiskDuringTheDensePart) {
  const TempFolder folder;
  const std::string path =
      WriteTinyModel(folder.path(), {.arch = "qwen3moe", .type = "Q8_0", .layers = 3});
  PatientDisk disk;
  EngineOptions options;
  options.threads = 1;
  options.cache = CacheSize{.percent = 100.0};
  options.predictor = "none";
  options.io_depth = 1;
  options.wrap_reader = [&disk](std::unique_ptr<BlockReader> inner) {
    return std::make_unique<PatientReader>(std::move(inner), disk);
  };
  auto engine = OneSequence::Open(path, options);
  ASSERT_TRUE(engine.has_value()) << engine.error().message;
  std::vector<size_t> seen;  // by layer
  (*engine)->SetRouteObserver([&](const SeenRouting&) { seen.push_back(disk.given.size()); });
  ASSERT_TRUE((*engine)->Append(SeededTokens(32, 512, 1)).has_value());
  ASSERT_EQ(seen.size(), 3U);
  constexpr size_t kReadsOfALayer = 8 * 3;
  EXPECT_EQ(seen[0], 0U);  // no expert was known yet
  EXPECT_EQ(seen[1], kReadsOfALayer);
  EXPECT_EQ(seen[2], kReadsOfALayer);
}

TEST(IoDepth, MeasuredOrNotItChangesNoBit) {
  const TempFolder folder;
  const std::string path = WriteTinyModel(
      folder.path(),
      {.arch = "qwen3moe", .type = "Q8_0", .layers = 3, .experts = 32, .embd = 512, .ff = 512});
  const std::vector<Token> tokens = SeededTokens(8, 512, 1);
  std::vector<std::vector<float>> logits;
  for (const uint32_t asked : {0U, 1U, 32U}) {
    EngineOptions options;
    options.threads = 2;
    options.cache = CacheSize{.percent = 40.0};
    options.io_depth = asked;
    auto engine = OneSequence::Open(path, options);
    ASSERT_TRUE(engine.has_value()) << engine.error().message;
    const uint32_t depth = (*engine)->engine().facts().io_depth;
    if (asked > 0) {
      EXPECT_EQ(depth, asked);
    } else {
      EXPECT_TRUE(std::ranges::contains(kIoDepths, depth)) << depth;
    }
    const auto last = (*engine)->Append(tokens);
    ASSERT_TRUE(last.has_value()) << last.error().message;
    logits.emplace_back(last->begin(), last->end());
  }
  EXPECT_EQ(logits[1], logits[0]);
  EXPECT_EQ(logits[2], logits[0]);
}

// The measurement alone must not keep a model from starting.
TEST(IoDepth, AFailedMeasurementLeavesTheUsualDepth) {
  const TempFolder folder;
  const std::string path = WriteTinyModel(
      folder.path(),
      {.arch = "qwen3moe", .type = "Q8_0", .layers = 3, .experts = 32, .embd = 512, .ff = 512});
  EngineOptions options;
  options.threads = 1;
  options.cache = CacheSize{.percent = 40.0};
  options.wrap_reader = [](std::unique_ptr<BlockReader> inner) {
    return std::make_unique<FaultReader>(std::move(inner), FaultScript().ErrorAt(0, EIO));
  };
  auto engine = OneSequence::Open(path, options);
  ASSERT_TRUE(engine.has_value()) << engine.error().message;
  EXPECT_EQ((*engine)->engine().facts().io_depth, kIoDepths.front());
}

}  // namespace
}  // namespace moestro
