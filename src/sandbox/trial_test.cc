// SPDX-License-Identifier: MIT
#include "sandbox/trial.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace moestro {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;

TEST(TryInChild, TellsPassedFromRefused) {
  EXPECT_EQ(TryInChild([] { return true; }, {.time = 30s}).outcome, Trial::Outcome::kPassed);
  EXPECT_EQ(TryInChild([] { return false; }, {.time = 30s}).outcome, Trial::Outcome::kRefused);
  EXPECT_EQ(TryInChild([]() -> bool { throw std::runtime_error("x"); }, {.time = 30s}).outcome,
            Trial::Outcome::kRefused);
}

TEST(TryInChild, SurvivesADeathAndKeepsTheLastWords) {
  const Trial trial = TryInChild(
      [] {
        std::fputs("what a pity\n", stderr);
        return raise(SIGKILL) == 0;
      },
      {.time = 30s});
  EXPECT_EQ(trial.outcome, Trial::Outcome::kCrashed);
  EXPECT_EQ(trial.output, "what a pity\n");
}

TEST(TryInChild, EndsWhatDoesNotReturn) {
  const Trial trial = TryInChild([] { return pause() == 0; }, {.time = 50ms});
  EXPECT_EQ(trial.outcome, Trial::Outcome::kTimedOut);
}

TEST(TryInChild, LimitsWhatTheChildTakes) {
  const Trial trial = TryInChild(
      [] {
        std::vector<std::string> taken;
        while (taken.size() < 64) taken.emplace_back(size_t{64} << 20, 'x');
        return true;
      },
      {.time = 30s});
  EXPECT_NE(trial.outcome, Trial::Outcome::kPassed);
  EXPECT_NE(trial.outcome, Trial::Outcome::kTimedOut);
}

TEST(TryInChild, TheLimitOfMemoryIsTheCallers) {
  const auto takes = [](size_t mib) {
    return [mib] {
      const std::vector<std::string> taken(mib, std::string(size_t{1} << 20U, 'x'));
      return taken.back().back() == 'x';
    };
  };
  const TrialLimits limits{.time = 30s, .memory = uint64_t{16} << 20U};
  EXPECT_EQ(TryInChild(takes(8), limits).outcome, Trial::Outcome::kPassed);
  const size_t kept = mallinfo2().fordblks >> 20U;  // MiB that other tests have freed
  EXPECT_NE(TryInChild(takes(32 + kept), limits).outcome, Trial::Outcome::kPassed);
}

TEST(TryInChild, ChangesNothingInThisProcess) {
  int value = 1;
  EXPECT_EQ(TryInChild([&] { return ++value == 2; }, {.time = 30s}).outcome,
            Trial::Outcome::kPassed);
  EXPECT_EQ(value, 1);
}

using std::chrono_literals::operator""ms;

std::pair<MessageSocket, MessageSocket> Ends() {
  auto ends = MessageSocket::MakePair();
  EXPECT_TRUE(ends);
  return *std::move(ends);
}

TEST(RelayChild, PassesOnWhatTheChildSays) {
  auto [owner, mine] = Ends();
  const RelayEnd end = RelayChild(mine, [](MessageSocket socket) {
    socket.Write("a", std::nullopt);
    socket.Write("b", std::nullopt);
  });
  EXPECT_EQ(end.outcome, Trial::Outcome::kPassed);
  EXPECT_EQ(owner.Read(std::nullopt), "a");
  EXPECT_EQ(owner.Read(std::nullopt), "b");
}

TEST(RelayChild, KnowsHowItEnded) {
  auto [owner, mine] = Ends();
  const auto end_of = [&mine](const std::function<void(MessageSocket)>& work) {
    return RelayChild(mine, work);
  };
  const RelayEnd left = end_of([](MessageSocket) { _exit(3); });
  EXPECT_EQ(left.outcome, Trial::Outcome::kRefused);
  EXPECT_EQ(left.exit_code, 3);
  EXPECT_EQ(end_of([](MessageSocket) { throw std::runtime_error("x"); }).outcome,
            Trial::Outcome::kRefused);
  EXPECT_EQ(end_of([](MessageSocket) { raise(SIGKILL); }).outcome, Trial::Outcome::kCrashed);
  const RelayEnd slow = end_of([](MessageSocket) {
    const ProcessorLimit limit(20ms);
    limit.Resume();
    for (volatile int i = 0;; i = i + 1) {
    }
  });
  EXPECT_EQ(slow.outcome, Trial::Outcome::kTimedOut);
  EXPECT_GT(slow.processor_seconds, 0.01);
}

// The child dies within a message, whose half is not passed on.
TEST(RelayChild, PassesOnWholeMessagesOnly) {
  auto [owner, mine] = Ends();
  RelayChild(mine, [](MessageSocket socket) {
    socket.Write("whole", std::nullopt);
    [[maybe_unused]] const auto n = write(socket.fd(), "\x08\0\0\0half", 8);
    raise(SIGKILL);
  });
  mine.Close();
  EXPECT_EQ(owner.Read(std::nullopt), "whole");
  EXPECT_EQ(owner.Read(std::nullopt), std::nullopt);
}

// The child would run for ever.
TEST(RelayChild, EndsWithItsOwner) {
  auto [owner, mine] = Ends();
  owner.Close();
  const RelayEnd end = RelayChild(mine, [](MessageSocket) {
    while (true) pause();
  });
  EXPECT_EQ(end.outcome, Trial::Outcome::kCrashed);
}

}  // namespace
}  // namespace moestro
