// SPDX-License-Identifier: MIT
// What a scheduler says of itself while a step is under way, which may be seconds. Its clock stands
// still: nothing is told because time has gone by.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "tests/serve/scheduler_testing.h"
#include "tests/support/gate_reader_testing.h"

namespace moestro {
namespace {

class SchedulerStatusTest : public ::testing::Test {
 protected:
  // Lets `client` look at a scheduler whose steps wait at the gate. The gate is open in the end.
  void Watch(const std::function<void(Scheduler&)>& client) {
    Scheduler scheduler(*engine_, DemoVocab(), {.parallel = 2, .rest_seconds = 1e9},
                        [] { return 0.0; });
    ServeWhile(scheduler, [&] {
      client(scheduler);
      gate_.Open();
    });
  }
  static std::shared_ptr<Job> Ask(Scheduler& scheduler, Wish wish) {
    wish.uses_prefixes = false;
    auto job = Make(wish);
    EXPECT_TRUE(scheduler.Submit(job));
    return job;
  }
  static void AwaitEnd(Job& job) {
    while (const auto event = job.Next(std::chrono::minutes(5))) {
      if (std::holds_alternative<TextEnd>(*event)) return;
    }
    ADD_FAILURE() << "no end";
  }

  Gate gate_;
  std::unique_ptr<NativeEngine> engine_ =
      Open({.percent = 10.0, .wrap = [this](std::unique_ptr<BlockReader> inner) {
              return std::make_unique<GateReader>(std::move(inner), gate_);
            }});
};

// It was seen after its first step, which computes its prompt.
TEST_F(SchedulerStatusTest, ATextIsSeenWhileItsPromptIsComputed) {
  gate_.Shut();
  Watch([&](Scheduler& scheduler) {
    const auto first = Ask(scheduler, kWishes[0]);
    gate_.AwaitReader();
    const SchedulerStatus status = scheduler.status();
    ASSERT_EQ(status.texts.size(), 1U);
    EXPECT_FALSE(status.texts[0].is_written);
    EXPECT_EQ(status.texts[0].prompt_tokens, first->prompt().size());
    EXPECT_EQ(status.waiting, 0U);
  });
}

TEST_F(SchedulerStatusTest, ATextThatHasEndedIsNotSeenInTheNextOnesStep) {
  Watch([&](Scheduler& scheduler) {
    AwaitEnd(*Ask(scheduler, {.prompt = "Once upon", .tokens = 2}));
    gate_.Shut();
    const auto second = Ask(scheduler, kWishes[2]);
    gate_.AwaitReader();
    const SchedulerStatus status = scheduler.status();
    ASSERT_EQ(status.texts.size(), 1U);
    EXPECT_EQ(status.texts[0].prompt_tokens, second->prompt().size());
    EXPECT_EQ(status.totals.finished, 1U);
  });
}

// All that were asked for are seen somewhere at any moment.
TEST_F(SchedulerStatusTest, EveryRequestIsSeenWaitingOrRunning) {
  constexpr size_t kJobs = 24;
  Scheduler scheduler(*engine_, DemoVocab(), {.parallel = 2, .rest_seconds = 1e9},
                      [] { return 0.0; });
  std::vector<std::shared_ptr<Job>> jobs;
  for (size_t i = 0; i < kJobs; ++i) {
    jobs.push_back(Ask(scheduler, {.prompt = "Once", .tokens = 2}));
  }
  size_t fewest = kJobs;
  std::jthread watcher([&](const std::stop_token& is_over) {
    while (!is_over.stop_requested()) {
      const SchedulerStatus status = scheduler.status();
      fewest = std::min(fewest, status.texts.size() + status.waiting + status.totals.finished);
    }
  });
  scheduler.Drain();
  EXPECT_TRUE(scheduler.Run());
  watcher.request_stop();
  watcher.join();
  EXPECT_EQ(fewest, kJobs);
  EXPECT_EQ(scheduler.status().totals.finished, kJobs);
}

}  // namespace
}  // namespace moestro
