// SPDX-License-Identifier: MIT
// A text's tokens while a long prompt is computed in one step: they come between its layers, are
// the same as alone, and so is what follows the prompt.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "native/native_engine.h"
#include "serve/scheduler.h"
#include "tests/serve/scheduler_testing.h"

namespace moestro {
namespace {

constexpr uint32_t kManyRows = 10;

std::string LongPrompt() {
  std::string prompt = "Once upon a time";
  for (int i = 0; i < 12; ++i) prompt += ", there was a little dog and a big cat";
  return prompt;
}

// A text is being written when a long prompt comes. The scheduler's clock counts layers: a layer of
// a step that writes takes a second, a layer of a long prompt's step takes a minute.
class Meeting {
 public:
  Meeting(NativeEngine& engine, const Wish& text, const Wish& prompt, SchedulerOptions options)
      : scheduler_(engine, DemoVocab(), std::move(options), [this] { return seconds_; }),
        text_(Make(text)),
        prompt_(Make(prompt)) {
    engine.SetRouteObserver([this](const SeenRouting& seen) { See(seen); });
    EXPECT_TRUE(scheduler_.Submit(text_));
    EXPECT_TRUE(scheduler_.Run());
    engine.SetRouteObserver({});
    said = Listen(*text_);
    answered = Listen(*prompt_);
  }
  SchedulerStatus status() const { return scheduler_.status(); }

  Said said;
  Said answered;
  uint32_t between = 0;  // layers of steps that write, between two layers of a long prompt's step

 private:
  void See(const SeenRouting& seen) {
    const bool writes = std::ranges::contains(seen.kinds, RowKind::kDecode);
    if (writes && !has_come_) {
      has_come_ = true;
      EXPECT_TRUE(scheduler_.Submit(prompt_));
      scheduler_.Drain();
    }
    const bool is_long = !writes && seen.kinds.size() >= kManyRows;
    if (is_long && seen.layer.value > 0) between += since_;
    if (is_long) since_ = 0;
    since_ += writes ? 1 : 0;
    seconds_ += is_long ? 60.0 : 1.0;
  }

  double seconds_ = 0.0;
  Scheduler scheduler_;
  std::shared_ptr<Job> text_;
  std::shared_ptr<Job> prompt_;
  bool has_come_ = false;
  uint32_t since_ = 0;
};

TEST(SchedulerGapTest, TextsGetTokensBetweenAPromptsLayers) {
  const auto engine = Open({.ctx = 300, .chunk = 300});
  const uint32_t layers = engine->spec().n_expert_layers();
  const Wish prompt{.prompt = LongPrompt()};
  const Said alone = ServeOne(*engine, prompt, {.gap_seconds = 1e9});
  ASSERT_TRUE(alone.end);
  // Some end while the prompt is computed.
  for (const int64_t tokens : {3, 4, 40}) {
    const Wish text{.prompt = "Tom and Lily", .tokens = tokens, .uses_prefixes = false};
    const Said expected = ServeOne(*engine, text);
    Wish fresh = prompt;
    fresh.uses_prefixes = false;
    const Meeting meeting(*engine, text, fresh, {.gap_seconds = 0.0});
    EXPECT_GE(meeting.between, layers) << tokens;
    EXPECT_EQ(meeting.said.text, expected.text) << tokens;
    EXPECT_EQ(meeting.answered.text, alone.text) << tokens;
    EXPECT_EQ(meeting.status().totals.finished, 2U);
    EXPECT_EQ(meeting.status().totals.failed, 0U);
  }
}

// Where a step takes less than the gap nothing comes between.
TEST(SchedulerGapTest, APromptWithinTheGapIsNotInterrupted) {
  const auto engine = Open({.ctx = 300, .chunk = 300});
  const Meeting meeting(*engine, {.prompt = "Tom and Lily"}, {.prompt = LongPrompt()},
                        {.gap_seconds = 1e9});
  EXPECT_EQ(meeting.between, 0U);
  EXPECT_TRUE(meeting.said.end);
  EXPECT_TRUE(meeting.answered.end);
}

// Positions for a token of each text are taken from kept prefixes; without any they wait.
TEST(SchedulerGapTest, AFullCacheIsNoReasonToFail) {
  for (const uint32_t positions : {304U, 352U, 416U}) {
    const auto engine = Open({.ctx = 300, .positions = positions, .chunk = 300});
    const Wish text{.prompt = "Tom and Lily", .tokens = 60};
    const Said expected = ServeOne(*engine, text);
    const Meeting meeting(*engine, text, {.prompt = LongPrompt()}, {.gap_seconds = 0.0});
    EXPECT_EQ(meeting.said.text, expected.text) << positions;
    EXPECT_TRUE(meeting.answered.end) << positions;
    EXPECT_EQ(meeting.status().totals.failed, 0U) << positions;
  }
}

}  // namespace
}  // namespace moestro
