// SPDX-License-Identifier: MIT
#include "serve/response_store.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

namespace fs = std::filesystem;

class ResponseStoreTest : public ::testing::Test {
 protected:
  std::unique_ptr<ResponseStore> Open(uint64_t most_bytes = 1 << 20, double most_days = 30.0) {
    auto store =
        ResponseStore::Open({.folder = Folder(), .most_bytes = most_bytes, .most_days = most_days});
    EXPECT_TRUE(store) << store.error().message;
    return store ? *std::move(store) : nullptr;
  }
  std::string Folder() const { return folder_.File("answers"); }
  std::vector<fs::path> Files() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(Folder())) files.push_back(entry.path());
    return files;
  }
  static std::string IdOf(int n) { return Format("resp_{:016x}", n); }
  static bool Save(ResponseStore& store, int n, const std::string& owner = "") {
    return store.Save(
        {.id = IdOf(n), .reply = Format(R"({{"id":"{}"}})", IdOf(n)), .items = R"([{"said":2}])"},
        R"([{"asked":1}])", owner);
  }
  void MakeOlder(const std::string& id, std::chrono::hours age) const {
    for (const fs::path& file : Files()) {
      if (!file.string().contains(id)) continue;
      fs::last_write_time(file, fs::file_time_type::clock::now() - age);
    }
  }

  TempFolder folder_;
};

TEST_F(ResponseStoreTest, AnAnswerIsFoundDeletedAndThenUnknown) {
  const auto store = Open();
  ASSERT_TRUE(Save(*store, 1));
  EXPECT_EQ(store->Find(IdOf(1), ""), R"({"id":"resp_0000000000000001"})");
  const ApiResult<Json> items = store->Recall(IdOf(1), "", {});
  ASSERT_TRUE(items);
  EXPECT_EQ(items->Dump(), R"([{"asked":1},{"said":2}])");
  EXPECT_TRUE(store->Delete(IdOf(1), ""));
  EXPECT_FALSE(store->Delete(IdOf(1), ""));
  EXPECT_FALSE(store->Find(IdOf(1), ""));
  const ApiResult<Json> gone = store->Recall(IdOf(1), "", {});
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().status, 400);
  EXPECT_EQ(gone.error().code, "previous_response_not_found");
  EXPECT_EQ(gone.error().param, "previous_response_id");
}

TEST_F(ResponseStoreTest, EmptyListsOfItemsJoin) {
  const auto store = Open();
  ASSERT_TRUE(store->Save({.id = IdOf(1), .reply = "{}", .items = "[]"}, "[1]", ""));
  ASSERT_TRUE(store->Save({.id = IdOf(2), .reply = "{}", .items = "[2]"}, "[]", ""));
  ASSERT_TRUE(store->Save({.id = IdOf(3), .reply = "{}", .items = "[]"}, "[]", ""));
  EXPECT_EQ(store->Recall(IdOf(1), "", {})->Dump(), "[1]");
  EXPECT_EQ(store->Recall(IdOf(2), "", {})->Dump(), "[2]");
  EXPECT_EQ(store->Recall(IdOf(3), "", {})->Dump(), "[]");
}

TEST_F(ResponseStoreTest, FilesAndFolderAreTheUsersAlone) {
  const auto store = Open();
  ASSERT_TRUE(Save(*store, 1, ResponseStore::OwnerOf("secret")));
  struct stat info = {};
  ASSERT_EQ(stat(Folder().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0700U);
  ASSERT_EQ(Files().size(), 1U);
  ASSERT_EQ(stat(Files()[0].c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
  EXPECT_FALSE(Files()[0].string().contains("secret"));
  fs::permissions(Folder(), fs::perms::group_read, fs::perm_options::add);
  const auto open = ResponseStore::Open({.folder = Folder()});
  ASSERT_FALSE(open);
  EXPECT_EQ(open.error().code, Errc::kUsage);
}

TEST_F(ResponseStoreTest, AnotherKeysAnswersAreUnknown) {
  const auto store = Open();
  const std::string mine = ResponseStore::OwnerOf("mine");
  const std::string theirs = ResponseStore::OwnerOf("theirs");
  ASSERT_NE(mine, theirs);
  EXPECT_TRUE(ResponseStore::IsOwner(mine));
  ASSERT_TRUE(Save(*store, 1, mine));
  for (const std::string& other : {theirs, std::string()}) {
    EXPECT_FALSE(store->Find(IdOf(1), other));
    EXPECT_FALSE(store->Recall(IdOf(1), other, {}));
    EXPECT_FALSE(store->Delete(IdOf(1), other));
  }
  EXPECT_TRUE(store->Find(IdOf(1), mine));
}

TEST_F(ResponseStoreTest, IdsThatAreNoneNameNoFile) {
  const auto store = Open();
  ASSERT_TRUE(Save(*store, 1));
  std::ofstream(folder_.File("resp_secret.response")) << "moestro response 1\n{}\n[]\n";
  for (const std::string& id :
       {std::string(), std::string("resp_"), std::string("../resp_secret"),
        std::string("resp_../../x0000000"), std::string("resp_000000000000000\0", 21),
        std::string("resp_000000000000000A"), std::string("resp_0000000000000001.response"),
        "/" + IdOf(1), std::string(1 << 20, 'a'), "resp_" + std::string(1 << 20, '0')}) {
    EXPECT_FALSE(store->Find(id, ""));
    EXPECT_FALSE(store->Delete(id, ""));
    const ApiResult<Json> recalled = store->Recall(id, "", {});
    ASSERT_FALSE(recalled);
    EXPECT_LT(recalled.error().message.size(), 400U);
  }
  EXPECT_EQ(Files().size(), 1U);
  for (const char* owner : {"..", "../../etc/passwd", "0123", "0123456789abcdeg"})
    EXPECT_FALSE(ResponseStore::IsOwner(owner)) << owner;
}

TEST_F(ResponseStoreTest, FilesThatAreCutDamagedOrLinksAreAbsent) {
  const auto store = Open();
  ASSERT_TRUE(Save(*store, 1));
  const fs::path file = Files()[0];
  std::ifstream in(file, std::ios::binary);
  const std::string whole(std::istreambuf_iterator<char>(in), {});
  for (size_t length = 0; length < whole.size(); ++length) {
    std::ofstream(file, std::ios::binary) << whole.substr(0, length);
    EXPECT_FALSE(store->Find(IdOf(1), "")) << length;
  }
  std::ofstream(file, std::ios::binary) << "moestro response 1\n{}\n[{]\n";
  EXPECT_FALSE(store->Recall(IdOf(1), "", {}));
  std::ofstream(folder_.File("elsewhere"), std::ios::binary) << whole;
  fs::remove(file);
  fs::create_symlink(folder_.File("elsewhere"), file);
  EXPECT_FALSE(store->Find(IdOf(1), ""));
}

TEST_F(ResponseStoreTest, TheOldGoByAge) {
  double now = 0.0;
  auto opened = ResponseStore::Open(
      {.folder = Folder(), .most_bytes = 1 << 20, .most_days = 2.0, .clock = [&] { return now; }});
  ASSERT_TRUE(opened);
  const std::unique_ptr<ResponseStore> store = *std::move(opened);
  ASSERT_TRUE(Save(*store, 1));
  ASSERT_TRUE(Save(*store, 2));
  std::ofstream(Folder() + "/" + IdOf(7) + ".response.7-0.partial") << "what a killed process left";
  // Files of somebody who keeps others in the folder.
  for (const char* other : {"login.response.json", "resp_1.response", "notes"})
    std::ofstream(Folder() + "/" + other) << "mine";
  for (const std::string& old :
       {IdOf(1), IdOf(7), std::string("login"), std::string("resp_1"), std::string("notes")}) {
    MakeOlder(old, std::chrono::hours(49));
  }
  MakeOlder(IdOf(2), std::chrono::hours(47));
  EXPECT_FALSE(store->Find(IdOf(1), ""));
  EXPECT_TRUE(store->Find(IdOf(2), ""));
  EXPECT_EQ(Files().size(), 6U);
  ASSERT_TRUE(Save(*store, 3));
  EXPECT_EQ(Files().size(), 7U) << "looked a moment ago";
  now = 61.0;
  ASSERT_TRUE(Save(*store, 4));
  EXPECT_EQ(Files().size(), 6U);
  EXPECT_TRUE(Open(1 << 20, 0.0)->Find(IdOf(2), ""));
}

// A client that stores much pushes out its own answers, not another client's.
TEST_F(ResponseStoreTest, TheOldestOfWhoHasTheMostGoBySize) {
  const std::string mine = ResponseStore::OwnerOf("mine");
  const std::string theirs = ResponseStore::OwnerOf("theirs");
  const auto store = Open(500);
  ASSERT_TRUE(Save(*store, 1, mine));
  MakeOlder(IdOf(1), std::chrono::hours(9));
  for (int n = 2; n < 20; ++n) {
    ASSERT_TRUE(Save(*store, n, theirs));
    MakeOlder(IdOf(n), std::chrono::hours(24 - n));
  }
  EXPECT_TRUE(store->Find(IdOf(1), mine));
  EXPECT_TRUE(store->Find(IdOf(19), theirs));
  EXPECT_FALSE(store->Find(IdOf(2), theirs));
  uint64_t bytes = 0;
  for (const fs::path& file : Files()) bytes += fs::file_size(file);
  EXPECT_LE(bytes, 500U);
}

TEST_F(ResponseStoreTest, AnAnswerLargerThanTheFolderMayBeIsNotStored) {
  const auto store = Open(500);
  ASSERT_TRUE(Save(*store, 1));
  const std::string large = "\"" + std::string(600, 'a') + "\"";
  EXPECT_FALSE(store->Save({.id = IdOf(2), .reply = large, .items = "[]"}, "[]", ""));
  EXPECT_TRUE(store->Find(IdOf(1), ""));
}

TEST_F(ResponseStoreTest, AFolderThatIsGoneLosesAnswersAndNothingElse) {
  const auto store = Open();
  fs::remove_all(Folder());
  EXPECT_FALSE(Save(*store, 1));
  fs::create_directory(Folder());
  EXPECT_TRUE(Save(*store, 1));
  EXPECT_FALSE(ResponseStore::Open({.folder = "/proc/none/x"}));
}

}  // namespace
}  // namespace moestro
