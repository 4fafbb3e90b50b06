// SPDX-License-Identifier: MIT
#include "sandbox/child_starter.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace moestro {
namespace {

ChildStarter::Work Echo() {
  return {.serve = [](std::string_view request,
                      MessageSocket answers) { answers.Write(request, std::nullopt); },
          .most_children = 2,
          .what = "echoes",
          .purpose = "say it again",
          .what_fails = "tests"};
}

std::unique_ptr<ChildStarter> StartWork(ChildStarter::Work work) {
  auto starter = ChildStarter::Start(std::move(work));
  EXPECT_TRUE(starter) << starter.error().message;
  return starter ? *std::move(starter) : nullptr;
}

// The child's answer; nullopt: the child has not begun.
std::optional<std::string> AnswerTo(ChildStarter& starter, const std::string& request) {
  auto answers = starter.Begin(request);
  EXPECT_TRUE(answers) << answers.error().message;
  if (!answers || !answers->Read(std::nullopt)) return std::nullopt;
  return answers->Read(std::nullopt);
}

TEST(ChildStarter, AChildAnswersEachRequest) {
  const auto starter = StartWork(Echo());
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(AnswerTo(*starter, std::to_string(i)), std::to_string(i));
  }
}

TEST(ChildStarter, AHelperThatDiesIsReplaced) {
  const auto starter = StartWork(Echo());
  for (int i = 0; i < 3; ++i) {
    const int helper = starter->helper_id();
    kill(helper, SIGKILL);
    std::optional<std::string> answer = AnswerTo(*starter, "a");
    if (!answer) answer = AnswerTo(*starter, "a");  // the dead helper may have taken the request
    EXPECT_EQ(answer, "a");
    EXPECT_NE(starter->helper_id(), helper);
  }
}

TEST(ChildStarter, WhatEachHelperPreparesItsChildrenHave) {
  auto word = std::make_shared<std::string>();
  ChildStarter::Work work = Echo();
  work.prepare = [word] { *word = "prepared"; };
  work.serve = [word](std::string_view, MessageSocket answers) {
    answers.Write(*word, std::nullopt);
  };
  const auto starter = StartWork(std::move(work));
  EXPECT_EQ(AnswerTo(*starter, "a"), "prepared");
  EXPECT_EQ(*word, "") << "of this process";
}

TEST(ChildStarter, WhatKillsAHelperWhileItPreparesIsSeen) {
  ChildStarter::Work work = Echo();
  work.prepare = [] { raise(SIGKILL); };
  const auto starter = StartWork(std::move(work));
  auto answers = starter->Begin("a");
  if (answers) {
    EXPECT_FALSE(answers->Read(std::nullopt));
  }
}

// Kills spawner and helper and waits until another process has reaped them.
void KillAllOf(const ChildStarter& starter) {
  kill(starter.spawner_id(), SIGKILL);
  kill(starter.helper_id(), SIGKILL);
  while (starter.Missing().empty()) std::this_thread::yield();
}

TEST(ChildStarter, AnothersSpawnerTakesThePlaceOfOneThatHasGone) {
  const auto starter = StartWork(Echo());
  const auto other = StartWork(Echo());
  EXPECT_TRUE(starter->Mend());
  EXPECT_EQ(starter->Missing(), "");
  KillAllOf(*starter);
  EXPECT_TRUE(starter->Missing().contains("say it again")) << starter->Missing();
  while (starter->Mend()) std::this_thread::yield();  // the dead spawner's socket closes later
  const int spawner = other->spawner_id();
  starter->Adopt(other->GiveSpawner(), spawner);
  EXPECT_EQ(starter->spawner_id(), spawner);
  EXPECT_EQ(starter->Missing(), "");
  EXPECT_TRUE(starter->Mend());
  EXPECT_EQ(AnswerTo(*starter, "a"), "a");
  EXPECT_FALSE(other->Begin("a")) << "it has given its spawner away";
  kill(starter->helper_id(), SIGKILL);
  while (starter->Missing().empty()) std::this_thread::yield();
  EXPECT_TRUE(starter->Mend()) << "the adopted spawner starts helpers, too";
  EXPECT_EQ(AnswerTo(*starter, "b"), "b");
}

TEST(ChildStarter, WhoExpectsAdoptionWaitsForIt) {
  const auto starter = StartWork(Echo());
  const auto other = StartWork(Echo());
  std::atomic<bool> is_over = false;
  starter->ExpectAdoption(std::chrono::minutes(5), [&] { return is_over.load(); });
  KillAllOf(*starter);
  std::thread adopts([&] {
    const int spawner = other->spawner_id();
    starter->Adopt(other->GiveSpawner(), spawner);
  });
  starter->AwaitHelper();
  EXPECT_EQ(AnswerTo(*starter, "a"), "a");
  adopts.join();
  KillAllOf(*starter);
  is_over = true;
  starter->AwaitHelper();  // not for five minutes
  EXPECT_FALSE(starter->Begin("a"));
}

TEST(ChildStarter, WithoutHelperAndSpawnerItSaysSo) {
  const auto starter = StartWork(Echo());
  kill(starter->spawner_id(), SIGKILL);
  kill(starter->helper_id(), SIGKILL);
  Result<MessageSocket> answers = starter->Begin("a");
  // The helper's socket takes requests until the helper has died.
  for (int i = 0; answers && i < 1000; ++i) answers = starter->Begin("a");
  ASSERT_FALSE(answers);
  EXPECT_EQ(answers.error().code, Errc::kIo);
  EXPECT_TRUE(answers.error().message.contains("say it again")) << answers.error().message;
}

}  // namespace
}  // namespace moestro
