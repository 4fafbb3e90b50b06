// SPDX-License-Identifier: MIT
// A request to stop takes effect exactly once, whenever it comes.
#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "tests/support/one_sequence.h"
#include "tests/support/prompts.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

namespace moestro {
namespace {

constexpr uint32_t kLayers = 3;

class StopTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string path =
        WriteTinyModel(folder_.path(), {.arch = "olmoe", .type = "Q8_0", .layers = kLayers});
    EngineOptions options;
    options.ctx = 64;
    options.chunk = 8;
    options.threads = 1;
    auto engine = OneSequence::Open(path, options);
    ASSERT_TRUE(engine.has_value()) << engine.error().message;
    engine_ = *std::move(engine);
  }
  // The next Append() or AppendAll() is asked to stop when `layer` has been routed.
  void StopIn(uint16_t layer) {
    engine_->SetRouteObserver([this, layer](const SeenRouting& seen) {
      if (seen.layer.value == layer) engine_->RequestStop();
    });
  }
  void StopNoMore() { engine_->SetRouteObserver({}); }
  std::vector<float> Logits(std::span<const Token> tokens) {
    const auto logits = engine_->Append(tokens);
    EXPECT_TRUE(logits) << logits.error().message;
    return logits ? std::vector<float>(logits->begin(), logits->end()) : std::vector<float>();
  }
  // The pending stop ends the next step and leaves the sequence alone; the one after it succeeds.
  void ExpectOneStop() {
    const uint32_t position = engine_->position();
    const Token token = 7;
    const auto stopped = engine_->Append({&token, 1});
    ASSERT_FALSE(stopped);
    EXPECT_EQ(stopped.error().code, Errc::kInterrupted) << stopped.error().message;
    EXPECT_EQ(engine_->position(), position);
    EXPECT_TRUE(engine_->Append({&token, 1}));
  }

  TempFolder folder_;
  std::unique_ptr<OneSequence> engine_;
};

TEST_F(StopTest, AStopBetweenTwoCallsEndsTheSecond) {
  Logits(RandomTokens(20, 512, 1));
  engine_->RequestStop();
  ExpectOneStop();
}

TEST_F(StopTest, AStopInTheLastLayerEndsTheNextCall) {
  const std::vector<Token> prompt = RandomTokens(20, 512, 1);
  const std::vector<float> expected = Logits(prompt);
  engine_->Reset();
  Logits(std::span(prompt).first(16));
  StopIn(kLayers - 1);
  EXPECT_EQ(Logits(std::span(prompt).subspan(16)), expected) << "a finished call keeps its logits";
  StopNoMore();
  ExpectOneStop();
  StopIn(kLayers - 1);
  const Token token = 3;
  Logits({&token, 1});
  StopNoMore();
  ExpectOneStop();
  StopIn(kLayers - 1);
  EXPECT_TRUE(engine_->AppendAll(std::span(prompt).first(8)));
  StopNoMore();
  ExpectOneStop();
}

TEST_F(StopTest, AStopInAnEarlierLayerOrChunkEndsTheCallItself) {
  const std::vector<Token> prompt = RandomTokens(20, 512, 1);
  StopIn(0);
  for (const std::span<const Token> tokens : {std::span(prompt), std::span(prompt).first(1)}) {
    const auto stopped = engine_->Append(tokens);
    ASSERT_FALSE(stopped);
    EXPECT_EQ(stopped.error().code, Errc::kInterrupted);
    EXPECT_EQ(engine_->position(), 0U);
  }
  StopIn(kLayers - 1);  // of the first chunk of three
  EXPECT_FALSE(engine_->Append(prompt));
  StopNoMore();
  EXPECT_TRUE(engine_->Append(prompt));
}

// The last token is done and the text complete: what is measured for the summary neither fails nor
// loses its figure.
TEST_F(StopTest, AStopAfterTheLastTokenLeavesTheMeasurementAlone) {
  Logits(RandomTokens(20, 512, 1));
  engine_->RequestStop();
  const auto seconds = engine_->engine().ProbeComputeSeconds({{&engine_->sequence()}});
  ASSERT_TRUE(seconds) << seconds.error().message;
  EXPECT_TRUE(seconds->has_value());
  const Token token = 3;
  EXPECT_TRUE(engine_->Append({&token, 1})) << "the stop was for the text before";
}

}  // namespace
}  // namespace moestro
