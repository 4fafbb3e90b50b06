// SPDX-License-Identifier: MIT
// Prefixes that a scheduler keeps in memory and on disk: what is there is not computed again, and
// the text is the same.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "serve/scheduler.h"
#include "tests/serve/scheduler_testing.h"
#include "tests/support/small_disk_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

TEST(SchedulerPrefixTest, AKeptPrefixIsNotComputedAgainAndChangesNothing) {
  const auto engine = Open();
  const Wish wish = kWishes[2];
  const Said cold = ServeOne(*engine, wish);
  Scheduler scheduler(*engine, DemoVocab(), {.parallel = 1});
  const Wish longer{.prompt = wish.prompt + " the bird was gone", .tokens = 5};
  const std::vector<Said> said = ServeAll(scheduler, {wish, wish, longer});
  const uint32_t n_prompt = cold.end->usage.prompt_tokens;
  EXPECT_EQ(said[0].end->usage.cached_tokens, 0U);
  EXPECT_EQ(said[1].end->usage.cached_tokens, n_prompt - 1);
  EXPECT_GE(said[2].end->usage.cached_tokens, n_prompt - 1);
  EXPECT_EQ(said[1].text, cold.text);
  const auto fresh = Open();
  EXPECT_EQ(said[2].text, ServeOne(*fresh, longer).text);
}

TEST(SchedulerPrefixTest, AJobThatUsesNoPrefixesLeavesNone) {
  const auto engine = Open();
  Wish wish = kWishes[2];
  wish.uses_prefixes = false;
  Scheduler scheduler(*engine, DemoVocab(), {.parallel = 1});
  const std::vector<Said> said = ServeAll(scheduler, {wish, wish});
  EXPECT_EQ(said[1].end->usage.cached_tokens, 0U);
  EXPECT_EQ(scheduler.status().kept_prefixes, 0U);
}

TEST(SchedulerPrefixTest, PrefixesOutliveTheServer) {
  const TempFolder folder;
  const SchedulerOptions options{
      .cache_folder = folder.path().string(), .cache_key = "k", .cache_disk = 1 << 30};
  const Wish wish = kWishes[2];
  Said first;
  {
    const auto engine = Open();
    first = ServeOne(*engine, wish, options);
  }
  const auto engine = Open();
  Scheduler scheduler(*engine, DemoVocab(), options);
  EXPECT_EQ(scheduler.status().saved_prefixes, 1U);
  const Said second = ServeAll(scheduler, {wish}).front();
  EXPECT_EQ(second.end->usage.cached_tokens, first.end->usage.prompt_tokens - 1);
  EXPECT_EQ(second.text, first.text);
}

// In a small cache others took its place before it had rested, and it was on no disk.
TEST(SchedulerPrefixTest, ASmallPrefixThatGivesWayIsFoundAfterARestart) {
  const TempFolder folder;
  const SchedulerOptions options{.parallel = 1,
                                 .rest_seconds = 1e9,
                                 .cache_folder = folder.path().string(),
                                 .cache_key = "k",
                                 .cache_disk = 1 << 30};
  const Setting small{.ctx = 128, .positions = 192};
  Said first;
  {
    const auto engine = Open(small);
    Scheduler scheduler(*engine, DemoVocab(), options);
    std::vector<Wish> wishes = {kWishes[2]};
    for (const char* name : {"Anna", "Ben", "Max"}) {
      wishes.push_back({.prompt = name + kWishes[2].prompt, .tokens = 30});
    }
    first = ServeAll(scheduler, wishes).front();
    EXPECT_LT(scheduler.status().kept_prefixes, wishes.size()) << "somebody had to give way";
  }
  const auto engine = Open(small);
  const Said second = ServeOne(*engine, kWishes[2], options);
  EXPECT_EQ(second.end->usage.cached_tokens, first.end->usage.prompt_tokens - 1);
  EXPECT_EQ(second.text, first.text);
}

TEST(SchedulerPrefixTest, PrefixesOfAnotherTemplateAreNotUsed) {
  const TempFolder folder;
  SchedulerOptions options{
      .cache_folder = folder.path().string(), .cache_key = "a", .cache_disk = 1 << 30};
  const auto engine = Open();
  ServeOne(*engine, kWishes[2], options);
  options.cache_key = "b";
  EXPECT_EQ(ServeOne(*engine, kWishes[2], options).end->usage.cached_tokens, 0U);
}

std::vector<std::filesystem::path> FilesIn(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    files.push_back(entry.path());
  return files;
}

TEST(SchedulerPrefixTest, ADamagedFileIsRemovedAndTheTextIsTheSame) {
  const TempFolder folder;
  const SchedulerOptions options{
      .cache_folder = folder.path().string(), .cache_key = "k", .cache_disk = 1 << 30};
  const auto engine = Open();
  const Said first = ServeOne(*engine, kWishes[2], options);
  ASSERT_EQ(FilesIn(folder.path().string()).size(), 1U);
  const std::filesystem::path file = FilesIn(folder.path().string()).front();
  {
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(static_cast<std::streamoff>(std::filesystem::file_size(file)) / 2);
    bytes.put('\x55').put('\xAA').put('\x12');
  }
  Scheduler scheduler(*engine, DemoVocab(), options);
  const Said second = ServeAll(scheduler, {kWishes[2]}).front();
  EXPECT_EQ(second.end->usage.cached_tokens, 0U);
  EXPECT_EQ(second.text, first.text);
}

TEST(SchedulerPrefixTest, TheFolderHoldsNoMoreThanItMay) {
  const TempFolder folder;
  const auto engine = Open();
  SchedulerOptions options{.parallel = 1,
                           .cache_folder = folder.path().string(),
                           .cache_key = "k",
                           .cache_disk = 1 << 30};
  ServeOne(*engine, kWishes[2], options);
  const uint64_t one = std::filesystem::file_size(FilesIn(folder.path().string()).front());
  options.cache_disk = one * 3 / 2;
  Scheduler scheduler(*engine, DemoVocab(), options);
  ServeAll(scheduler,
           {{.prompt = "Max was a very big and very happy dog who liked to play with all of the "
                       "other dogs in the park near the house of"}});
  uint64_t bytes = 0;
  for (const auto& file : FilesIn(folder.path().string()))
    bytes += std::filesystem::file_size(file);
  EXPECT_LE(bytes, options.cache_disk);
  EXPECT_GT(bytes, 0U);
}

TEST(SchedulerPrefixTest, AFullDiskIsSaidOnceAndHurtsNothing) {
  const TempFolder measure;
  SchedulerOptions options{.rest_seconds = 0.0,
                           .cache_folder = measure.path().string(),
                           .cache_key = "k",
                           .cache_disk = 1 << 30};
  const auto engine = Open();
  const Said alone = ServeOne(*engine, kWishes[2], options);
  const uint64_t one = std::filesystem::file_size(FilesIn(options.cache_folder).front());
  const TempFolder folder;
  const SmallDisk disk(folder.path(), one * 3 / 2);
  if (!disk.is_there()) GTEST_SKIP() << "mounting a small disk takes root";
  options.cache_folder = folder.path().string();

  Scheduler scheduler(*engine, DemoVocab(), options);
  // Between two steps a prefix may be written, so after two of these the last text's has been.
  const auto let_it_save = [&] {
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(Do(scheduler, SaveAction::kErase, 3));
  };
  const std::string longer = "Max was a very big and very happy dog who liked to play with all of ";
  ::testing::internal::CaptureStderr();
  ServeWhile(scheduler, [&] {
    for (const char* end : {"the cats in", "his friends in", "the birds in"}) {
      Answer(scheduler, {.prompt = longer + end, .tokens = 40});
      let_it_save();
    }
    const std::vector<std::filesystem::path> files = FilesIn(options.cache_folder);
    EXPECT_LE(files.size(), 1U);
    EXPECT_EQ(scheduler.status().saved_prefixes, files.size());
    EXPECT_EQ(scheduler.status().kept_prefixes, 3U);
    for (const auto& file : files) {
      EXPECT_EQ(file.extension(), ".prefix");
      std::filesystem::remove(file);
    }
    std::string said;
    Answer(scheduler, kWishes[2], &said);
    EXPECT_EQ(said, alone.text);
    let_it_save();
    EXPECT_EQ(FilesIn(options.cache_folder).size(), 1U);
  });
  const std::string log = ::testing::internal::GetCapturedStderr();
  const size_t first = log.find("not kept on disk");
  EXPECT_NE(first, std::string::npos) << log;
  EXPECT_EQ(log.find("not kept on disk", first + 1), std::string::npos) << log;
}

}  // namespace
}  // namespace moestro
