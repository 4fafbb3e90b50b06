// SPDX-License-Identifier: MIT
// Pulling, finding, listing and removing, against a hub on this machine.
#include "hub/cache_changes.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/text.h"
#include "hub/shared_folder.h"
#include "tests/support/content_name_testing.h"
#include "tests/support/hub_server_testing.h"
#include "tests/support/refused_calls_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

namespace fs = std::filesystem;

const std::string kOld(40, 'a');
const std::string kNew(40, 'b');

ModelName NameOfRepo(const std::string& quantisation, const std::string& revision = "main") {
  return {.kind = ModelNameKind::kHub,
          .repo = "o/r",
          .revision = revision,
          .quantisation = quantisation};
}

class PullTest : public ::testing::Test {
 protected:
  PullTest() {
    server_.Add("o/r", kOld, "m-Q8_0.gguf", large_);
    server_.Add("o/r", kOld, "BF16/m-BF16-00001-of-00002.gguf", first_);
    server_.Add("o/r", kOld, "BF16/m-BF16-00002-of-00002.gguf", second_);
  }
  HubClient Client() {
    auto client = HubClient::Create(server_.Settings(folder_.path().string()), stop_,
                                    {.silent_seconds = 5.0}, QuickRetries());
    EXPECT_TRUE(client);
    return *std::move(client);
  }
  Status PullModel(const ModelName& name, const PullWatcher& watcher = {}) {
    HubClient client = Client();
    TRY(const PullPlan plan, PlanPull(client, cache_, name));
    return Pull(client, cache_, plan, {.ranges = {.range_bytes = 10'000}}, watcher);
  }
  void MustPull(const ModelName& name) {
    const Status status = PullModel(name);
    ASSERT_TRUE(status) << status.error().message;
  }
  std::string Snapshot(const std::string& commit, const std::string& path) const {
    return cache_.layout().Snapshot("o/r", commit) + "/" + path;
  }
  std::string BlobOf(const std::string& content) const {
    return cache_.layout().Blob("o/r", Sha256Of(content));
  }
  Result<std::optional<FileLock>> TryLock(const std::string& content) const {
    const HubLayout& layout = cache_.layout();
    TRY(const SharedFolder folder,
        SharedFolder::Open(layout.cache(), layout.LockFolder("o/r"), SharedFolder::Way::kMake));
    return FileLock::Try(folder, HubLayout::LockName(content));
  }
  std::vector<std::string> Listed() const {
    std::vector<std::string> names;
    for (const CachedModel& model : cache_.Models()) names.push_back(model.name());
    return names;
  }

  std::string large_ = SomeBytes(80'000, 1);
  std::string first_ = SomeBytes(50'000, 2);
  std::string second_ = SomeBytes(20'000, 3);
  HubServer server_;
  TempFolder folder_;
  HubCache cache_{folder_.path().string()};
  StopSignal stop_;
};

// As the hub's own client and others lay it out.
TEST_F(PullTest, TheLayoutIsTheHubs) {
  MustPull(NameOfRepo("bf16"));
  const std::string path = Snapshot(kOld, "BF16/m-BF16-00001-of-00002.gguf");
  EXPECT_EQ(fs::read_symlink(path).string(), "../../../blobs/" + Sha256Of(first_));
  EXPECT_TRUE(ReadAll(path) == first_);
  EXPECT_TRUE(ReadAll(Snapshot(kOld, "BF16/m-BF16-00002-of-00002.gguf")) == second_);
  EXPECT_EQ(ReadAll(folder_.File("models--o--r/refs/main")), kOld);
  EXPECT_TRUE(fs::is_regular_file(BlobOf(first_)));
  EXPECT_TRUE(fs::exists(folder_.File(".locks/models--o--r/" + Sha256Of(first_) + ".lock")));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.File("models--o--r/blobs")), {}), 2);
}

TEST_F(PullTest, WhatIsThereIsFoundAndNotFetchedAgain) {
  MustPull(NameOfRepo("q8_0"));
  server_.Forget();
  const auto found = cache_.Find(NameOfRepo("Q8_0"));
  ASSERT_TRUE(found && *found);
  EXPECT_EQ((*found)->path, Snapshot(kOld, "m-Q8_0.gguf"));
  EXPECT_EQ((*found)->name(), "o/r:Q8_0");
  EXPECT_TRUE(*cache_.Find(NameOfRepo(""))) << "the only one there is";
  EXPECT_FALSE(*cache_.Find(NameOfRepo("BF16")));
  EXPECT_FALSE(*cache_.Find(NameOfRepo("Q8_0", "v2")));
  EXPECT_TRUE(*cache_.Find(NameOfRepo("Q8_0", kOld)));
  EXPECT_TRUE(server_.asked().empty());
  MustPull(NameOfRepo("q8_0"));
  EXPECT_TRUE(server_.AskedForContent().empty());
}

// A cache of others, or on a medium that takes nothing: what is there as a whole needs no lock.
TEST_F(PullTest, WhatIsKnownIsNotTouched) {
  MustPull(NameOfRepo("q8_0"));
  fs::remove_all(folder_.File(".locks"));
  MustPull(NameOfRepo("q8_0"));
  EXPECT_FALSE(fs::exists(folder_.File(".locks")));
}

// Another snapshot stands in where a model is used; what is removed is what was named.
TEST_F(PullTest, RemovalTakesNoOtherRevision) {
  MustPull(NameOfRepo("q8_0", kOld));
  ASSERT_TRUE(*cache_.Find(NameOfRepo("Q8_0")));
  const auto removed = RemoveModel(cache_, NameOfRepo("Q8_0"));
  ASSERT_FALSE(removed);
  EXPECT_TRUE(removed.error().message.contains(kOld)) << removed.error().message;
  EXPECT_TRUE(fs::exists(Snapshot(kOld, "m-Q8_0.gguf")));
  EXPECT_TRUE(RemoveModel(cache_, NameOfRepo("Q8_0", kOld)));
}

// What another tool has fetched: the same links, made by somebody else.
TEST_F(PullTest, AnotherToolsFilesAreFound) {
  fs::create_directories(folder_.File("models--o--r/blobs"));
  fs::create_directories(folder_.File("models--o--r/snapshots/" + kOld));
  fs::create_directories(folder_.File("models--o--r/refs"));
  std::ofstream(BlobOf(large_), std::ios::binary) << large_;
  fs::create_symlink("../../blobs/" + Sha256Of(large_), Snapshot(kOld, "m-Q8_0.gguf"));
  std::ofstream(folder_.File("models--o--r/refs/main")) << kOld;
  EXPECT_TRUE(*cache_.Find(NameOfRepo("Q8_0")));
  EXPECT_EQ(Listed(), (std::vector<std::string>{"o/r:Q8_0"}));
  MustPull(NameOfRepo("Q8_0"));
  EXPECT_TRUE(server_.AskedForContent().empty());
}

TEST_F(PullTest, AModelWithoutAllItsPartsIsNotThere) {
  MustPull(NameOfRepo("BF16"));
  fs::remove(BlobOf(second_));
  EXPECT_FALSE(*cache_.Find(NameOfRepo("BF16")));
  EXPECT_TRUE(Listed().empty());
  server_.Forget();
  MustPull(NameOfRepo("BF16"));
  for (const auto& asked : server_.AskedForContent()) {
    EXPECT_TRUE(asked.target.contains(Sha256Of(second_))) << "only what is missing";
  }
}

TEST_F(PullTest, ANewCommitSharesItsContents) {
  MustPull(NameOfRepo("Q8_0"));
  server_.Add("o/r", kNew, "m-Q8_0.gguf", large_);
  server_.Add("o/r", kNew, "m-Q4_K_M.gguf", first_);
  server_.Forget();
  MustPull(NameOfRepo("Q8_0"));
  EXPECT_TRUE(server_.AskedForContent().empty());
  EXPECT_EQ(ReadAll(folder_.File("models--o--r/refs/main")), kNew);
  EXPECT_EQ(Listed(), (std::vector<std::string>{"o/r:Q8_0", "o/r:Q8_0@" + kOld}));

  const auto removed = RemoveModel(cache_, NameOfRepo("Q8_0"));
  ASSERT_TRUE(removed) << removed.error().message;
  EXPECT_EQ(removed->freed, 0);
  EXPECT_EQ(removed->kept, large_.size()) << "the older snapshot links it";
  EXPECT_TRUE(fs::exists(BlobOf(large_)));
  EXPECT_FALSE(fs::exists(folder_.File("models--o--r/refs/main"))) << "it would name nothing";
  const auto rest = RemoveModel(cache_, NameOfRepo("Q8_0", kOld));
  ASSERT_TRUE(rest) << rest.error().message;
  EXPECT_EQ(rest->freed, large_.size());
  EXPECT_FALSE(fs::exists(folder_.File("models--o--r")));
}

TEST_F(PullTest, AnOlderSnapshotStandsIn) {
  MustPull(NameOfRepo("Q8_0"));
  server_.Add("o/r", kNew, "m-Q4_K_M.gguf", first_);
  MustPull(NameOfRepo("Q4_K_M"));
  const auto found = cache_.Find(NameOfRepo("Q8_0"));
  ASSERT_TRUE(found && *found);
  EXPECT_EQ((*found)->commit, kOld);
  EXPECT_EQ((*found)->name(), "o/r:Q8_0@" + kOld);
}

TEST_F(PullTest, RemovingLeavesTheOthers) {
  MustPull(NameOfRepo("Q8_0"));
  MustPull(NameOfRepo("BF16"));
  const auto unclear = RemoveModel(cache_, NameOfRepo(""));
  ASSERT_FALSE(unclear);
  EXPECT_TRUE(unclear.error().message.contains("o/r:BF16")) << unclear.error().message;
  const auto removed = RemoveModel(cache_, NameOfRepo("BF16"));
  ASSERT_TRUE(removed) << removed.error().message;
  EXPECT_EQ(removed->freed, first_.size() + second_.size());
  EXPECT_EQ(Listed(), (std::vector<std::string>{"o/r:Q8_0"}));
  EXPECT_FALSE(fs::exists(Snapshot(kOld, "BF16")));
  const auto again = RemoveModel(cache_, NameOfRepo("BF16"));
  ASSERT_FALSE(again);
  EXPECT_TRUE(again.error().message.contains("nearest: o/r:Q8_0")) << again.error().message;
}

TEST_F(PullTest, PartsOfOneContentAreOneBlob) {
  server_.Add("o/r", kNew, "m-F16-00001-of-00002.gguf", first_);
  server_.Add("o/r", kNew, "m-F16-00002-of-00002.gguf", first_);
  MustPull(NameOfRepo("F16"));
  const auto removed = RemoveModel(cache_, NameOfRepo("F16"));
  ASSERT_TRUE(removed) << removed.error().message;
  EXPECT_EQ(removed->freed, first_.size());
  EXPECT_FALSE(fs::exists(folder_.File("models--o--r")));
}

TEST_F(PullTest, WhatIsBeingFetchedIsNotRemoved) {
  MustPull(NameOfRepo("Q8_0"));
  const auto lock = TryLock(Sha256Of(large_));
  ASSERT_TRUE(lock && *lock);
  const auto removed = RemoveModel(cache_, NameOfRepo("Q8_0"));
  ASSERT_FALSE(removed);
  EXPECT_TRUE(removed.error().message.contains("at this moment")) << removed.error().message;
  EXPECT_TRUE(fs::exists(BlobOf(large_)));
}

// A link out of the repository is removed, what it leads to is not.
TEST_F(PullTest, AForeignFileBehindALinkStays) {
  MustPull(NameOfRepo("Q8_0"));
  std::ofstream(folder_.File("precious.gguf")) << "precious";
  fs::remove(Snapshot(kOld, "m-Q8_0.gguf"));
  fs::create_symlink(folder_.File("precious.gguf"), Snapshot(kOld, "m-Q8_0.gguf"));
  const auto removed = RemoveModel(cache_, NameOfRepo("Q8_0"));
  ASSERT_TRUE(removed) << removed.error().message;
  EXPECT_EQ(removed->freed, 0);
  EXPECT_EQ(ReadAll(folder_.File("precious.gguf")), "precious");
}

// Of a user's own, which a link makes part of the cache.
TEST_F(PullTest, FilesBehindALinkedFolderStay) {
  MustPull(NameOfRepo("Q8_0"));
  const TempFolder elsewhere;
  const std::string snapshots = cache_.layout().Snapshots("o/r");
  fs::create_directory(elsewhere.File(kOld));
  const std::string precious = elsewhere.File(kOld + "/m-Q8_0.gguf");
  std::ofstream(precious) << "precious";
  for (const auto& [link, target] :
       {std::pair(cache_.layout().Snapshot("o/r", kOld), elsewhere.File(kOld)),
        std::pair(snapshots, elsewhere.path().string())}) {
    fs::remove_all(link);
    fs::create_directory_symlink(target, link);
    const auto removed = RemoveModel(cache_, NameOfRepo("Q8_0"));
    ASSERT_FALSE(removed) << link;
    EXPECT_TRUE(removed.error().message.contains(link + " is a link")) << removed.error().message;
    EXPECT_EQ(ReadAll(precious), "precious");
    EXPECT_TRUE(fs::is_symlink(link));
  }
  EXPECT_TRUE(fs::exists(BlobOf(large_)));
}

// What a killed process has left hinders no later pull, even of the same number.
TEST_F(PullTest, LeftOversHinderNoPull) {
  ASSERT_TRUE(cache_.MakeFolders("o/r"));
  const std::string state = cache_.layout().State("o/r", Sha256Of(large_));
  std::ofstream(Format("{}.{}.partial", state, getpid())) << "left";
  fs::create_directories(cache_.layout().Snapshot("o/r", kOld));
  fs::create_symlink("nowhere", Snapshot(kOld, Format(".moestro-link-{}-0", getpid())));
  MustPull(NameOfRepo("Q8_0"));
  EXPECT_EQ(ReadAll(Snapshot(kOld, "m-Q8_0.gguf")), large_);
}

TEST_F(PullTest, PartsAreListedAndRemoved) {
  const Status status =
      PullModel(NameOfRepo("Q8_0"), {.progress = [&](const PullProgress& progress) {
                  if (progress.there >= 20'000) stop_.Request();
                }});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Errc::kInterrupted);
  stop_.Take();
  EXPECT_FALSE(*cache_.Find(NameOfRepo("Q8_0")));
  const auto parts = cache_.Parts();
  ASSERT_EQ(parts.size(), 1);
  EXPECT_EQ(parts[0].file, "m-Q8_0.gguf");
  EXPECT_EQ(parts[0].size, large_.size());
  EXPECT_GE(parts[0].there, 20'000);
  const auto removed = RemoveModel(cache_, NameOfRepo("Q8_0"));
  ASSERT_TRUE(removed) << removed.error().message;
  EXPECT_TRUE(removed->was_partial);
  EXPECT_FALSE(fs::exists(folder_.File("models--o--r")));
}

TEST_F(PullTest, TwoPullsAtOnceFetchOnce) {
  std::string said;
  ASSERT_TRUE(cache_.MakeFolders("o/r"));
  auto lock = TryLock(Sha256Of(large_));
  ASSERT_TRUE(lock && *lock);
  // The one that waits says so; then the other has fetched everything.
  const Status status = PullModel(NameOfRepo("Q8_0"), {.say = [&](std::string_view text) {
                                    said = text;
                                    std::ofstream(BlobOf(large_), std::ios::binary) << large_;
                                    lock = TryLock("unrelated2");
                                  }});
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_TRUE(said.contains("another process")) << said;
  EXPECT_TRUE(server_.AskedForContent().empty());
}

TEST_F(PullTest, PullsOfSeveralThreadsAgree) {
  std::vector<Status> results(4);
  {
    std::vector<std::jthread> threads;
    for (Status& result : results) {
      threads.emplace_back([&] { result = PullModel(NameOfRepo("Q8_0")); });
    }
  }
  for (const Status& result : results) EXPECT_TRUE(result) << result.error().message;
  EXPECT_TRUE(ReadAll(BlobOf(large_)) == large_);
  EXPECT_EQ(server_.AskedForContent().size(), 8) << "each byte once";
}

// exFAT and shares: files lie in the snapshot, once.
TEST_F(PullTest, WithoutLinksFilesLieInTheSnapshot) {
  server_.Add("o/r", kOld, "m-F16-00001-of-00002.gguf", first_);
  server_.Add("o/r", kOld, "m-F16-00002-of-00002.gguf", first_);
  std::jthread([&] {
    if (!RefuseCalls(CallsForLinks(EPERM))) GTEST_SKIP() << "the kernel refuses no calls";
    MustPull(NameOfRepo("Q8_0"));
    const std::string path = Snapshot(kOld, "m-Q8_0.gguf");
    EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(path)));
    EXPECT_TRUE(ReadAll(path) == large_);
    EXPECT_TRUE(fs::is_empty(folder_.File("models--o--r/blobs"))) << "once";
    const auto found = cache_.Find(NameOfRepo("Q8_0"));
    ASSERT_TRUE(found && *found);
    EXPECT_EQ((*found)->path, path);
    server_.Forget();
    MustPull(NameOfRepo("Q8_0"));
    EXPECT_TRUE(server_.AskedForContent().empty());

    MustPull(NameOfRepo("F16"));  // two parts of one content
    EXPECT_TRUE(ReadAll(Snapshot(kOld, "m-F16-00001-of-00002.gguf")) == first_);
    EXPECT_TRUE(ReadAll(Snapshot(kOld, "m-F16-00002-of-00002.gguf")) == first_);
    EXPECT_EQ(Listed(), (std::vector<std::string>{"o/r:F16", "o/r:Q8_0"}));
    for (const char* quantisation : {"F16", "Q8_0"}) {
      const auto removed = RemoveModel(cache_, NameOfRepo(quantisation));
      ASSERT_TRUE(removed) << removed.error().message;
      EXPECT_EQ(removed->freed, removed->name == "o/r:F16" ? 2 * first_.size() : large_.size());
    }
    EXPECT_FALSE(fs::exists(folder_.File("models--o--r")));
  }).join();
}

// A part that was placed before somebody ended the process is not fetched again.
TEST_F(PullTest, WithoutLinksWhatIsPlacedIsThere) {
  fs::create_directories(Snapshot(kOld, "BF16"));
  std::ofstream(Snapshot(kOld, "BF16/m-BF16-00001-of-00002.gguf"), std::ios::binary) << first_;
  MustPull(NameOfRepo("BF16"));
  for (const auto& asked : server_.AskedForContent()) {
    EXPECT_TRUE(asked.target.contains(Sha256Of(second_))) << "only what is missing";
  }
}

// NFS without its daemon, shares. The processes of this machine wait for each other all the same.
TEST_F(PullTest, WithoutLocksPullsAreSaidToBeAlone) {
  ASSERT_TRUE(cache_.MakeFolders("o/r"));
  for (const int error : {ENOLCK, EOPNOTSUPP, ENOSYS, EINVAL}) {
    std::jthread([&] {
      if (!RefuseCalls({{SYS_flock, static_cast<uint32_t>(error)}})) GTEST_SKIP() << "not here";
      std::optional<FileLock> first = TryLock(Sha256Of(large_)).value_or(std::nullopt);
      ASSERT_TRUE(first) << error;
      EXPECT_TRUE(first->is_of_this_machine());
      const auto second = TryLock(Sha256Of(large_));
      EXPECT_TRUE(second && !*second);
      first.reset();
      const auto third = TryLock(Sha256Of(large_));
      EXPECT_TRUE(third && *third);
    }).join();
  }
  std::jthread([&] {
    if (!RefuseCalls({{SYS_flock, ENOLCK}})) GTEST_SKIP() << "not here";
    std::vector<std::string> said;
    const auto say = [&](std::string_view text) { said.emplace_back(text); };
    const Status status = PullModel(NameOfRepo("Q8_0"), {.say = say});
    ASSERT_TRUE(status) << status.error().message;
    ASSERT_EQ(said.size(), 1);
    EXPECT_TRUE(said[0].contains("no locks")) << said[0];
    EXPECT_TRUE(said[0].contains(folder_.path().string())) << said[0];
    EXPECT_TRUE(RemoveModel(cache_, NameOfRepo("Q8_0")));
  }).join();
}

TEST_F(PullTest, OtherRefusalsOfALockAreErrors) {
  ASSERT_TRUE(cache_.MakeFolders("o/r"));
  std::jthread([&] {
    if (!RefuseCalls({{SYS_flock, EIO}})) GTEST_SKIP() << "not here";
    const auto lock = TryLock(Sha256Of(large_));
    ASSERT_FALSE(lock);
    EXPECT_EQ(lock.error().code, Errc::kIo);
  }).join();
}

TEST_F(PullTest, ThereIsRoomOrNothingIsAsked) {
  server_.OnReply([](const HubServer::Asked& asked, HubServer::Answer& answer, size_t) {
    if (!asked.target.contains("/tree/")) return;
    const std::string huge = "9223372036854775807";
    answer.body = R"([{"type":"file","path":"a-Q8_0-00001-of-00003.gguf","size":)" + huge +
                  R"(,"oid":"x","lfs":{"oid":")" + std::string(64, 'a') + R"(","size":)" + huge +
                  R"(}},{"type":"file","path":"a-Q8_0-00002-of-00003.gguf","size":)" + huge +
                  R"(,"lfs":{"oid":")" + std::string(64, 'b') + R"(","size":)" + huge +
                  R"(}},{"type":"file","path":"a-Q8_0-00003-of-00003.gguf","size":)" + huge +
                  R"(,"lfs":{"oid":")" + std::string(64, 'c') + R"(","size":)" + huge + "}}]";
  });
  const Status status = PullModel(NameOfRepo("Q8_0"));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Errc::kNoMemory);
  EXPECT_TRUE(status.error().message.contains("free")) << status.error().message;
  EXPECT_TRUE(server_.AskedForContent().empty());
  EXPECT_FALSE(fs::exists(folder_.File("models--o--r")));
}

TEST_F(PullTest, AFileWithoutAHashIsRefused) {
  server_.OnReply([](const HubServer::Asked& asked, HubServer::Answer& answer, size_t) {
    if (asked.target.contains("/tree/")) {
      answer.body = R"([{"type":"file","path":"m-Q8_0.gguf","size":5}])";
    }
  });
  EXPECT_TRUE(PullModel(NameOfRepo("Q8_0")).error().message.contains("no hash"));
}

TEST_F(PullTest, ACacheThatIsNoneIsASentence) {
  std::ofstream(folder_.File("file")) << "x";
  const HubCache cache(folder_.File("file"));
  HubClient client = Client();
  const auto plan = PlanPull(client, cache, NameOfRepo("Q8_0"));
  const Status status =
      plan ? Pull(client, cache, *plan, {}, {}) : Status(std::unexpected(plan.error()));
  ASSERT_FALSE(status);
  EXPECT_TRUE(status.error().message.contains(folder_.File("file"))) << status.error().message;
  EXPECT_TRUE(
      PlanPull(client, HubCache(""), NameOfRepo("Q8_0")).error().message.contains("HF_HUB_CACHE"));
}

TEST_F(PullTest, OtherFoldersOfTheCacheAreLeftAlone) {
  for (const char* name : {"datasets--o--r", "models--only", "models--a--b--c", "models--..--x",
                           "models--o--r/snapshots/latest", "models--o--r/refs/main"}) {
    fs::create_directories(folder_.File(name));
  }
  EXPECT_TRUE(cache_.Models().empty());
  EXPECT_TRUE(cache_.Parts().empty());
  EXPECT_EQ(cache_.Repos(), (std::vector<std::string>{"o/r"}));
  EXPECT_FALSE(*cache_.Find(NameOfRepo("Q8_0")));
}

}  // namespace
}  // namespace moestro
