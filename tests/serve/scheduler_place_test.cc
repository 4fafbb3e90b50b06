// SPDX-License-Identifier: MIT
// What clients ask of a scheduler's places: a text that ran there goes to a file and comes back
// from it, and nothing in such a file hurts the server.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "serve/scheduler.h"
#include "tests/serve/scheduler_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

using namespace std::chrono_literals;
// The newest token of a text is never computed.
uint64_t TokensOf(const TextEnd& end) {
  return uint64_t{end.usage.prompt_tokens} + end.usage.completion_tokens - 1;
}

class SchedulerPlaceTest : public ::testing::Test {
 protected:
  SchedulerOptions Options(std::string key = "k") const {
    return {.cache_key = std::move(key), .saved_texts_folder = folder_.path().string()};
  }
  // Saves a text of kWishes[2] at place 0 of a server of its own.
  TextEnd SaveOne(const std::string& file, std::string* said = nullptr) {
    const auto engine = Open();
    Scheduler scheduler(*engine, DemoVocab(), Options());
    TextEnd end;
    ServeWhile(scheduler, [&] {
      end = Answer(scheduler, kWishes[2], said);
      EXPECT_TRUE(Do(scheduler, SaveAction::kSave, 0, file));
    });
    return end;
  }

  TempFolder folder_;
};

TEST_F(SchedulerPlaceTest, ATextThatWasSavedIsGoneOnWithByAnotherServer) {
  std::string first;
  std::string second;
  const TextEnd saved = SaveOne("a", &first);
  const auto engine = Open();
  Scheduler scheduler(*engine, DemoVocab(), Options());
  ServeWhile(scheduler, [&] {
    const Outcome done = Do(scheduler, SaveAction::kRestore, 3, "a");
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_EQ(done->tokens, TokensOf(saved));
    EXPECT_EQ(done->bytes, std::filesystem::file_size(folder_.File("a")));
    EXPECT_EQ(scheduler.status().kept_tokens, done->tokens);
    const TextEnd again = Answer(scheduler, kWishes[2], &second);
    EXPECT_EQ(again.usage.cached_tokens, again.usage.prompt_tokens - 1);
    // The place has what was restored, though the text ran at another.
    const Outcome copied = Do(scheduler, SaveAction::kSave, 3, "b");
    ASSERT_TRUE(copied) << copied.error().message;
    EXPECT_EQ(copied->tokens, done->tokens);
  });
  EXPECT_EQ(second, first);
  EXPECT_EQ(ReadAll(folder_.File("b")), ReadAll(folder_.File("a")));
}

TEST_F(SchedulerPlaceTest, EachPlaceHasItsOwnTextThoughOthersEnd) {
  const auto engine = Open();
  Scheduler scheduler(*engine, DemoVocab(), Options());
  const auto short_one = Make({.prompt = "A cat", .tokens = 2});
  const auto long_one = Make(kWishes[2]);
  ASSERT_TRUE(scheduler.Submit(short_one));
  ASSERT_TRUE(scheduler.Submit(long_one));
  ServeWhile(scheduler, [&] {
    while (scheduler.status().totals.finished < 2) std::this_thread::sleep_for(1ms);
    const Outcome first = Do(scheduler, SaveAction::kSave, 0, "a");
    const Outcome second = Do(scheduler, SaveAction::kSave, 1, "b");
    ASSERT_TRUE(first && second);
    EXPECT_EQ(first->tokens, TokensOf(*Listen(*short_one).end));
    EXPECT_EQ(second->tokens, TokensOf(*Listen(*long_one).end));
    EXPECT_EQ(Do(scheduler, SaveAction::kSave, 2, "c").error().status, 404);
    // The lowest place that is free.
    const TextEnd third = Answer(scheduler, {.prompt = "One day", .tokens = 5});
    EXPECT_EQ(Do(scheduler, SaveAction::kSave, 0, "a")->tokens, TokensOf(third));
  });
}

TEST_F(SchedulerPlaceTest, WhatWasErasedIsComputedAgain) {
  const auto engine = Open();
  Scheduler scheduler(*engine, DemoVocab(), Options());
  ServeWhile(scheduler, [&] {
    const TextEnd end = Answer(scheduler, kWishes[2]);
    EXPECT_EQ(Do(scheduler, SaveAction::kErase, 0)->tokens, TokensOf(end));
    EXPECT_EQ(scheduler.status().kept_prefixes, 0U);
    EXPECT_EQ(Do(scheduler, SaveAction::kErase, 0)->tokens, 0U);
    EXPECT_EQ(Do(scheduler, SaveAction::kSave, 0, "a").error().status, 404);
    EXPECT_EQ(Answer(scheduler, kWishes[2]).usage.cached_tokens, 0U);
  });
  EXPECT_TRUE(folder_.is_empty());
}

TEST_F(SchedulerPlaceTest, APlaceWhereATextRunsIsBusy) {
  const auto engine = Open();
  Scheduler scheduler(*engine, DemoVocab(), Options());
  const auto job = Make(kWishes[0]);
  ASSERT_TRUE(scheduler.Submit(job));
  // One task between two steps, the first one before the text begins.
  const auto before = Order(scheduler, SaveAction::kErase, 0);
  const auto during = Order(scheduler, SaveAction::kSave, 0, "a");
  const auto beside = Order(scheduler, SaveAction::kErase, 1);
  const auto beyond = Order(scheduler, SaveAction::kErase, 4);
  scheduler.Drain();
  EXPECT_TRUE(scheduler.Run());
  EXPECT_TRUE(ResultOf(*before));
  EXPECT_EQ(ResultOf(*during).error().status, 409);
  EXPECT_TRUE(ResultOf(*beside));
  EXPECT_EQ(ResultOf(*beyond).error().status, 400);
  EXPECT_TRUE(Listen(*job).end);
  EXPECT_TRUE(folder_.is_empty());
}

// A client with a key filled the disk with names of its own.
TEST_F(SchedulerPlaceTest, MoreFilesThanMayBeAreRefused) {
  const auto engine = Open();
  SchedulerOptions options = Options();
  options.most_saved_texts = 2;
  Scheduler scheduler(*engine, DemoVocab(), options);
  ServeWhile(scheduler, [&] {
    Answer(scheduler, kWishes[2]);
    EXPECT_TRUE(Do(scheduler, SaveAction::kSave, 0, "a"));
    EXPECT_TRUE(Do(scheduler, SaveAction::kSave, 0, "b"));
    const Outcome third = Do(scheduler, SaveAction::kSave, 0, "c");
    ASSERT_FALSE(third);
    EXPECT_EQ(third.error().status, 400);
    EXPECT_EQ(third.error().code, "too_many_files");
    EXPECT_TRUE(third.error().message.contains("2 texts")) << third.error().message;
    EXPECT_TRUE(Do(scheduler, SaveAction::kSave, 0, "b")) << "it takes another's place";
  });
  EXPECT_FALSE(std::filesystem::exists(folder_.File("c")));
}

// The folder may be the models' own.
TEST_F(SchedulerPlaceTest, WhatIsNoSavedTextIsNotReplaced) {
  std::ofstream(folder_.File("model.gguf")) << "GGUF and more";
  std::filesystem::create_symlink("model.gguf", folder_.File("link"));
  const auto engine = Open();
  Scheduler scheduler(*engine, DemoVocab(), Options());
  ServeWhile(scheduler, [&] {
    Answer(scheduler, kWishes[2]);
    EXPECT_TRUE(Do(scheduler, SaveAction::kSave, 0, "good"));
    for (const char* name : {"model.gguf", "link"}) {
      const Outcome saved = Do(scheduler, SaveAction::kSave, 0, name);
      ASSERT_FALSE(saved) << name;
      EXPECT_EQ(saved.error().status, 400);
      EXPECT_TRUE(saved.error().message.contains("no saved text")) << saved.error().message;
    }
    EXPECT_TRUE(Do(scheduler, SaveAction::kSave, 0, "good"));
  });
  EXPECT_EQ(ReadAll(folder_.File("model.gguf")), "GGUF and more");
  EXPECT_TRUE(std::filesystem::is_symlink(folder_.File("link")));
}

TEST_F(SchedulerPlaceTest, FilesThatCannotBeUsedAreRefusedAndTheServerGoesOn) {
  std::string first;
  SaveOne("good", &first);
  std::string bytes = ReadAll(folder_.File("good"));
  std::ofstream(folder_.File("short"), std::ios::binary) << bytes.substr(0, bytes.size() / 2);
  bytes[bytes.size() / 2] ^= '\x55';
  std::ofstream(folder_.File("damaged"), std::ios::binary) << bytes;
  std::ofstream(folder_.File("foreign")) << "no such thing";
  std::ofstream(folder_.File("empty")) << "";
  std::filesystem::create_directory(folder_.File("folder"));
  const auto engine = Open();
  Scheduler scheduler(*engine, DemoVocab(), Options());
  std::string second;
  ServeWhile(scheduler, [&] {
    for (const char* file : {"short", "damaged", "foreign", "empty"}) {
      const Outcome done = Do(scheduler, SaveAction::kRestore, 0, file);
      ASSERT_FALSE(done) << file;
      EXPECT_EQ(done.error().status, 400) << file << ": " << done.error().message;
      EXPECT_EQ(done.error().param, "filename");
    }
    for (const char* file : {"absent", "folder"}) {
      EXPECT_EQ(Do(scheduler, SaveAction::kRestore, 0, file).error().status, 404) << file;
    }
    EXPECT_EQ(scheduler.status().kept_prefixes, 0U);
    EXPECT_EQ(Answer(scheduler, kWishes[2], &second).usage.cached_tokens, 0U);
  });
  EXPECT_EQ(second, first);
  EXPECT_TRUE(std::filesystem::exists(folder_.File("damaged")));
}

TEST_F(SchedulerPlaceTest, AFileOfAnotherTemplateIsRefused) {
  SaveOne("a");
  const auto engine = Open();
  Scheduler scheduler(*engine, DemoVocab(), Options("another"));
  ServeWhile(scheduler, [&] {
    const Outcome done = Do(scheduler, SaveAction::kRestore, 0, "a");
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().status, 400);
    EXPECT_TRUE(done.error().message.contains("template")) << done.error().message;
  });
}

TEST_F(SchedulerPlaceTest, AFileThatCannotBeWrittenIsTheServersFault) {
  SchedulerOptions options = Options();
  options.saved_texts_folder = folder_.File("gone");
  const auto engine = Open();
  Scheduler scheduler(*engine, DemoVocab(), options);
  ServeWhile(scheduler, [&] {
    Answer(scheduler, kWishes[2]);
    EXPECT_EQ(Do(scheduler, SaveAction::kSave, 0, "a").error().status, 500);
    EXPECT_GT(Answer(scheduler, kWishes[2]).usage.cached_tokens, 0U);
  });
}

TEST_F(SchedulerPlaceTest, ATextThatDoesNotFitBesideOthersMustWait) {
  {
    const auto roomy = Open();
    Scheduler scheduler(*roomy, DemoVocab(), Options());
    ServeWhile(scheduler, [&] {
      Answer(scheduler, {.prompt = kWishes[2].prompt, .temp = 1.0F, .tokens = 100});
      const Outcome done = Do(scheduler, SaveAction::kSave, 0, "long");
      ASSERT_TRUE(done);
      if (done->tokens < 97) GTEST_SKIP() << "the story ended by itself";
    });
  }
  const auto tight = Open({.positions = 320});
  Scheduler scheduler(*tight, DemoVocab(), Options());
  const auto job = Make(kWishes[0]);
  ASSERT_TRUE(scheduler.Submit(job));
  const auto before = Order(scheduler, SaveAction::kErase, 1);
  const auto during = Order(scheduler, SaveAction::kRestore, 1, "long");
  Outcome after;
  ServeWhile(scheduler, [&] {
    EXPECT_TRUE(ResultOf(*before));
    EXPECT_EQ(ResultOf(*during).error().status, 503);
    while (scheduler.status().totals.finished == 0) std::this_thread::sleep_for(1ms);
    after = Do(scheduler, SaveAction::kRestore, 1, "long");
  });
  EXPECT_TRUE(after) << after.error().message;
  EXPECT_TRUE(Listen(*job).end);
}

TEST_F(SchedulerPlaceTest, TasksKeepTheQueuesBoundAndEndWithTheServer) {
  const auto engine = Open();
  SchedulerOptions options = Options();
  options.parallel = 1;
  options.queue = 1;
  Scheduler scheduler(*engine, DemoVocab(), options);
  const auto first = Order(scheduler, SaveAction::kErase, 0);
  ASSERT_TRUE(scheduler.Submit(Make(kWishes[0])));
  const auto third = std::make_shared<SaveTask>(SaveAction::kErase, 0, "");
  EXPECT_EQ(scheduler.Submit(third).error().status, 429);
  EXPECT_EQ(scheduler.Submit(Make(kWishes[0])).error().status, 429);
  scheduler.Stop();
  EXPECT_TRUE(scheduler.Run());
  EXPECT_EQ(ResultOf(*first).error().status, 503);
  EXPECT_EQ(scheduler.Submit(third).error().status, 503);
}

TEST_F(SchedulerPlaceTest, ATaskThatNobodyWantsIsNotDone) {
  const auto engine = Open();
  Scheduler scheduler(*engine, DemoVocab(), Options());
  ServeWhile(scheduler, [&] {
    Answer(scheduler, kWishes[2]);
    const auto task = std::make_shared<SaveTask>(SaveAction::kErase, 0, "");
    task->Cancel();
    ASSERT_TRUE(scheduler.Submit(task));
    EXPECT_TRUE(Do(scheduler, SaveAction::kSave, 0, "a"));
  });
}

}  // namespace
}  // namespace moestro
