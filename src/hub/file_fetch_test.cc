// SPDX-License-Identifier: MIT
#include "hub/file_fetch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "hub/hub_cache.h"
#include "tests/support/content_name_testing.h"
#include "tests/support/file_size_limit_testing.h"
#include "tests/support/hub_server_testing.h"
#include "tests/support/small_disk_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

using Asked = HubServer::Asked;
using Answer = HubServer::Answer;

const std::string kCommit(40, 'a');
constexpr size_t kPiece = 10'000;  // bytes of a request

class FileFetchTest : public ::testing::Test {
 protected:
  FileFetchTest() {
    server_.Add("o/r", kCommit, "m.gguf", content_);
    EXPECT_TRUE(cache_.MakeFolders("o/r"));
  }
  Status Fetch(FileFetch::Watcher watcher = {}, FetchOptions options = {}) {
    options.ranges.range_bytes = kPiece;
    auto client = HubClient::Create(server_.Settings(folder_.path().string()), stop_,
                                    {.silent_seconds = 5.0}, QuickRetries());
    EXPECT_TRUE(client);
    FileFetch fetch(*client, cache_.layout(), wanted_, options, std::move(watcher));
    return fetch.Run();
  }
  // Ends a fetch once so many bytes are there.
  void FetchUntil(uint64_t bytes) {
    const Status status = Fetch([&](const FetchProgress& progress) {
      if (progress.there >= bytes) stop_.Request();
    });
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, Errc::kInterrupted) << status.error().message;
    stop_.Take();
    server_.Forget();
  }
  std::string Blob() const { return ReadAll(cache_.layout().Blob("o/r", wanted_.etag)); }
  bool is_part_there() const {
    return std::filesystem::exists(cache_.layout().Part("o/r", wanted_.etag)) ||
           std::filesystem::exists(cache_.layout().State("o/r", wanted_.etag));
  }
  uint64_t BytesThere() const {
    const auto parts = cache_.PartsOf("o/r");
    return parts.empty() ? 0 : parts.front().there;
  }
  // Bytes that the contents' server was asked for.
  uint64_t BytesAsked() const {
    uint64_t sum = 0;
    for (const Asked& asked : server_.AskedForContent()) sum += asked.range_bytes();
    return sum;
  }
  void ExpectWhole() {
    EXPECT_TRUE(Blob() == content_);
    EXPECT_FALSE(is_part_there());
  }

  std::string content_ = SomeBytes(205'000);
  HubServer server_;
  TempFolder folder_;
  HubCache cache_{folder_.path().string()};
  StopSignal stop_;
  FetchState wanted_{.repo = "o/r",
                     .commit = kCommit,
                     .file = "m.gguf",
                     .etag = Sha256Of(content_),
                     .size = content_.size()};
};

TEST_F(FileFetchTest, FetchesInParts) {
  uint64_t most = 0;
  const Status status = Fetch([&](const FetchProgress& p) { most = std::max(most, p.checked); });
  ASSERT_TRUE(status) << status.error().message;
  ExpectWhole();
  EXPECT_EQ(most, content_.size());
  EXPECT_EQ(server_.AskedForContent().size(), 21);
  EXPECT_EQ(BytesAsked(), content_.size());
  for (const Asked& asked : server_.AskedForContent()) {
    EXPECT_EQ(asked.Header("host").substr(0, 9), "localhost");
    EXPECT_EQ(asked.Header("if-range").empty(), asked.range() == "bytes=0-9999");
  }
}

TEST_F(FileFetchTest, AnEmptyFile) {
  content_.clear();
  wanted_.etag = Sha256Of("");
  wanted_.size = 0;
  ASSERT_TRUE(Fetch());
  ExpectWhole();
}

TEST_F(FileFetchTest, AFileThatGitKeeps) {
  ContentHash hash(HashKind::kGitBlob, content_.size());
  hash.Add(std::as_bytes(std::span(content_)));
  wanted_.etag = hash.Finish();
  wanted_.file = "small.gguf";
  server_.Add("o/r", kCommit, "small.gguf", content_, false);
  ASSERT_TRUE(Fetch());
  ExpectWhole();
  EXPECT_TRUE(server_.AskedForContent().empty());
}

TEST_F(FileFetchTest, AStopKeepsWhatIsThereAndTheNextGoesOn) {
  FetchUntil(60'000);
  const uint64_t there = BytesThere();
  EXPECT_GE(there, 60'000);
  EXPECT_TRUE(Blob().empty());
  ASSERT_TRUE(Fetch());
  ExpectWhole();
  EXPECT_EQ(BytesAsked(), content_.size() - there);
  EXPECT_FALSE(server_.AskedForContent().front().Header("if-range").empty());
  const auto asked = server_.asked();
  EXPECT_TRUE(asked.front().target.contains("/resolve/")) << "it is resolved anew";
}

TEST_F(FileFetchTest, CutConnectionsAreTriedAgain) {
  server_.OnReply([](const Asked& asked, Answer& answer, size_t n) {
    if (asked.is_for_content() && n % 3 == 1) answer.cut_after = 4321;
  });
  const Status status = Fetch();
  ASSERT_TRUE(status) << status.error().message;
  ExpectWhole();
}

TEST_F(FileFetchTest, AServerThatOnlyCutsIsGivenUp) {
  server_.OnReply([](const Asked& asked, Answer& answer, size_t n) {
    if (asked.is_for_content() && n > 3) answer.cut_after = 0;
  });
  const Status status = Fetch();
  ASSERT_FALSE(status);
  EXPECT_TRUE(status.error().message.contains("pull again")) << status.error().message;
  EXPECT_GE(BytesThere(), 3 * kPiece);
}

TEST_F(FileFetchTest, TooManyRequestsAreWaitedFor) {
  server_.OnReply([](const Asked& asked, Answer& answer, size_t n) {
    if (asked.is_for_content() && n > 0 && n % 4 == 0) {
      answer = {.status = n % 8 == 0 ? 429 : 503, .headers = {{"Retry-After", "0"}}};
    }
  });
  const Status status = Fetch();
  ASSERT_TRUE(status) << status.error().message;
  ExpectWhole();
}

TEST_F(FileFetchTest, ExpiredAddressesAreResolvedAnew) {
  server_.OnReply([](const Asked& asked, Answer& answer, size_t n) {
    if (asked.is_for_content() && n == 5) answer = {.status = 403};
    if (asked.is_for_content() && n == 15) answer = {.status = 401};
  });
  ASSERT_TRUE(Fetch());
  ExpectWhole();
  EXPECT_GE(std::ranges::count(server_.asked(), false, &Asked::is_for_content), 3);
}

TEST_F(FileFetchTest, ARefusalOfAllConnectionsIsOneFailure) {
  server_.OnReply([](const Asked& asked, Answer& answer, size_t n) {
    if (asked.is_for_content() && n > 0 && n < 7) {
      answer = {.status = 429, .headers = {{"Retry-After", "1"}}};
    }
  });
  const Status status = Fetch();
  ASSERT_TRUE(status) << status.error().message;
  ExpectWhole();
}

// A mirror that answers HEAD itself and leads GET elsewhere.
TEST_F(FileFetchTest, ARedirectOfAPartIsFollowed) {
  server_.OnReply([&](const Asked& asked, Answer& answer, size_t) {
    if (asked.is_for_content() || asked.method != "HEAD") return;
    answer.status = 200;
    answer.headers.erase("Location");
  });
  const Status status = Fetch();
  ASSERT_TRUE(status) << status.error().message;
  ExpectWhole();
}

TEST_F(FileFetchTest, WrongBytesAreDeletedAndSaid) {
  server_.OnReply([](const Asked& asked, Answer& answer, size_t n) {
    if (asked.is_for_content() && n == 7) answer.body[0] ^= 1;
  });
  const Status status = Fetch();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Errc::kInvalidFile);
  EXPECT_TRUE(status.error().message.contains(wanted_.etag)) << status.error().message;
  EXPECT_FALSE(is_part_there());
  EXPECT_TRUE(Blob().empty());
}

// A server that gives no parts, or one whose content changed meanwhile.
TEST_F(FileFetchTest, AWholeFileIsTakenFromTheBeginning) {
  server_.OnReply([&](const Asked& asked, Answer& answer, size_t) {
    if (asked.is_for_content()) answer = {.headers = {{"ETag", "\"w\""}}, .body = content_};
  });
  ASSERT_TRUE(Fetch());
  ExpectWhole();
  EXPECT_EQ(server_.AskedForContent().size(), 1);
}

// Each is a failure like any other, or the same part would be asked for without end.
TEST_F(FileFetchTest, RepliesWithoutBytesAreGivenUp) {
  server_.OnReply([](const Asked& asked, Answer& answer, size_t) {
    if (asked.is_for_content()) answer.body.clear();
  });
  const Status status = Fetch();
  ASSERT_FALSE(status);
  EXPECT_LT(server_.AskedForContent().size(), 100);
}

TEST_F(FileFetchTest, AnEtagThatChangesBetweenTwoTriesStartsAgain) {
  FetchUntil(60'000);
  // Had the old bytes stayed, the hash would not be right.
  std::filesystem::resize_file(cache_.layout().Part("o/r", wanted_.etag), 0);
  std::filesystem::resize_file(cache_.layout().Part("o/r", wanted_.etag), content_.size());
  server_.NameCopies("another-");
  const Status status = Fetch();
  ASSERT_TRUE(status) << status.error().message;
  ExpectWhole();
}

TEST_F(FileFetchTest, AnEtagThatAlwaysChangesIsGivenUp) {
  server_.OnReply([](const Asked& asked, Answer& answer, size_t n) {
    if (asked.is_for_content()) answer.headers["ETag"] = Format("\"{}\"", n);
  });
  const Status status = Fetch();
  ASSERT_FALSE(status);
  EXPECT_TRUE(status.error().message.contains("at each try")) << status.error().message;
}

TEST_F(FileFetchTest, ABodyThatGrowsIsAnError) {
  server_.OnReply([](const Asked& asked, Answer& answer, size_t n) {
    if (!asked.is_for_content() || n != 3) return;
    answer.body += "more";
    answer.is_of_no_length = true;
  });
  const Status status = Fetch();
  ASSERT_FALSE(status);
  EXPECT_TRUE(status.error().message.contains("another size")) << status.error().message;
  EXPECT_TRUE(Blob().empty());
}

TEST_F(FileFetchTest, AFileOfAnotherSizeIsAnError) {
  server_.OnReply([](const Asked& asked, Answer& answer, size_t n) {
    if (asked.is_for_content() && n == 2) answer.headers["Content-Range"] = "bytes 0-9999/206000";
  });
  EXPECT_TRUE(Fetch().error().message.contains("another size"));
  server_.OnReply([](const Asked& asked, Answer& answer, size_t) {
    if (!asked.is_for_content()) answer.headers["X-Linked-Size"] = "9223372036854775807";
  });
  EXPECT_TRUE(Fetch().error().message.contains("another size"));
}

TEST_F(FileFetchTest, AnotherContentOfTheHubIsAnError) {
  server_.OnReply([](const Asked& asked, Answer& answer, size_t) {
    if (!asked.is_for_content()) answer.headers["X-Linked-ETag"] = std::string(64, 'f');
  });
  EXPECT_TRUE(Fetch().error().message.contains("may be changing"));
}

TEST_F(FileFetchTest, ADamagedStateStartsAgain) {
  FetchUntil(60'000);
  std::ofstream(cache_.layout().State("o/r", wanted_.etag)) << "[[[[";
  ASSERT_TRUE(Fetch());
  ExpectWhole();
  EXPECT_EQ(BytesAsked(), content_.size());
}

// A state that lies: the hash finds out.
TEST_F(FileFetchTest, BytesThatAreNotThereAreFoundByTheHash) {
  FetchUntil(60'000);
  std::filesystem::resize_file(cache_.layout().Part("o/r", wanted_.etag), 0);
  std::filesystem::resize_file(cache_.layout().Part("o/r", wanted_.etag), content_.size());
  EXPECT_EQ(Fetch().error().code, Errc::kInvalidFile);
  EXPECT_FALSE(is_part_there());
  ASSERT_TRUE(Fetch());
  ExpectWhole();
}

TEST_F(FileFetchTest, AShorterPartStartsAgain) {
  FetchUntil(60'000);
  std::filesystem::resize_file(cache_.layout().Part("o/r", wanted_.etag), 1000);
  ASSERT_TRUE(Fetch());
  ExpectWhole();
}

TEST_F(FileFetchTest, AFullDiskIsASentenceAndWhatIsThereStays) {
  const SmallDisk disk(folder_.path(), 140'000);
  if (!disk.is_there()) GTEST_SKIP() << "may not mount";
  ASSERT_TRUE(cache_.MakeFolders("o/r"));
  const Status status = Fetch({}, {.save_bytes = 30'000});
  ASSERT_FALSE(status);
  EXPECT_TRUE(status.error().message.contains("the disk is full")) << status.error().message;
  EXPECT_GE(BytesThere(), 30'000);
}

TEST_F(FileFetchTest, ALimitOnFileSizesIsASentence) {
  const FileSizeLimit limit(100'000);
  EXPECT_TRUE(Fetch().error().message.contains("ulimit"));
}

}  // namespace
}  // namespace moestro
