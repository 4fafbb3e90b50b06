// SPDX-License-Identifier: MIT
#include "sandbox/relay.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <functional>
#include <optional>
#include <stdexcept>
#include <utility>

namespace moestro {
namespace {

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
