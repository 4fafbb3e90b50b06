// SPDX-License-Identifier: MIT
#include "hub/hub_client.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/hub_server_testing.h"

namespace moestro {
namespace {

const std::string kListedCommit(40, 'a');

class HubClientTest : public ::testing::Test {
 protected:
  HubClientTest() {
    server_.Add("o/r", kListedCommit, "m-Q4_K_M.gguf", model_);
    server_.Add("o/r", kListedCommit, "README.md", "read me", false);
  }
  HubClient Client(const std::string& token = {}) {
    HubSettings settings = server_.Settings("");
    settings.token = token;
    auto client = HubClient::Create(settings, stop_, {.silent_seconds = 5.0}, QuickRetries());
    EXPECT_TRUE(client);
    return *std::move(client);
  }
  std::string ReadText(HubClient& client, const std::string& path, uint64_t offset, uint64_t n) {
    const auto bytes = client.Read(client.AddressOf("o/r", kListedCommit, path), offset, n);
    if (!bytes) return "error: " + bytes.error().message;
    return *bytes;
  }

  std::string model_ = SomeBytes(100'000);
  HubServer server_;
  StopSignal stop_;
};

TEST_F(HubClientTest, ListsFilesOfACommit) {
  server_.ListFilesPerPage(1);
  HubClient client = Client();
  const auto listing = client.Files("o/r", "main");
  ASSERT_TRUE(listing) << listing.error().message;
  EXPECT_EQ(listing->commit, kListedCommit);
  ASSERT_EQ(listing->files.size(), 2);
  EXPECT_EQ(listing->files[0].size, model_.size());
  EXPECT_EQ(listing->files[0].sha256.size(), 64);
  EXPECT_EQ(listing->files[1].sha256, "");
}

TEST_F(HubClientTest, FindsWhereBytesAre) {
  HubClient client = Client();
  const auto place = client.Find(client.AddressOf("o/r", "main", "m-Q4_K_M.gguf"));
  ASSERT_TRUE(place) << place.error().message;
  EXPECT_TRUE(place->address.starts_with(server_.contents())) << place->address;
  EXPECT_EQ(place->commit, kListedCommit);
  EXPECT_EQ(place->etag.size(), 64);
  EXPECT_EQ(place->size, model_.size());
}

TEST_F(HubClientTest, ReadsPartsOfFiles) {
  HubClient client = Client();
  EXPECT_EQ(ReadText(client, "m-Q4_K_M.gguf", 5, 10), model_.substr(5, 10));
  EXPECT_EQ(ReadText(client, "m-Q4_K_M.gguf", 99'990, 50), model_.substr(99'990));
  EXPECT_EQ(ReadText(client, "m-Q4_K_M.gguf", 7, 0), "");
  EXPECT_EQ(ReadText(client, "README.md", 5, 2), "me");
  // The second part goes where the first one was led to.
  EXPECT_EQ(std::ranges::count(server_.asked(), false, &HubServer::Asked::is_for_content), 2);
}

TEST_F(HubClientTest, AnExpiredAddressIsFollowedAnew) {
  HubClient client = Client();
  EXPECT_EQ(ReadText(client, "m-Q4_K_M.gguf", 0, 4), model_.substr(0, 4));
  server_.OnReply([](const HubServer::Asked& asked, HubServer::Answer& answer, size_t n) {
    if (asked.is_for_content() && n == 1) answer = {.status = 403};
  });
  EXPECT_EQ(ReadText(client, "m-Q4_K_M.gguf", 4, 4), model_.substr(4, 4));
}

TEST_F(HubClientTest, TheTokenIsNotSentToAnotherHost) {
  server_.RequireToken("hf_secret");
  HubClient client = Client("hf_secret");
  EXPECT_EQ(ReadText(client, "m-Q4_K_M.gguf", 0, 4), model_.substr(0, 4));
  EXPECT_EQ(ReadText(client, "m-Q4_K_M.gguf", 4, 4), model_.substr(4, 4));
  size_t with_token = 0;
  for (const HubServer::Asked& asked : server_.asked()) {
    EXPECT_EQ(asked.Header("authorization").empty(), asked.is_for_content()) << asked.target;
    with_token += asked.Header("authorization").empty() ? 0 : 1;
  }
  EXPECT_EQ(with_token, 1);
}

TEST_F(HubClientTest, APageOfAnotherServerIsNotAsked) {
  server_.OnReply([&](const HubServer::Asked& asked, HubServer::Answer& answer, size_t) {
    if (asked.target.contains("/tree/")) {
      answer.headers["Link"] = "<http://localhost:1/next>; rel=\"next\"";
    }
  });
  HubClient client = Client("hf_secret");
  const auto listing = client.Files("o/r", "main");
  ASSERT_FALSE(listing);
  EXPECT_TRUE(listing.error().message.contains("another server")) << listing.error().message;
}

TEST_F(HubClientTest, ErrorsSayWhatToDo) {
  HubClient client = Client();
  const auto message = [&](const std::string& repo, const std::string& revision) {
    const auto listing = client.Files(repo, revision);
    EXPECT_FALSE(listing);
    return listing ? "" : listing.error().message;
  };
  EXPECT_TRUE(message("o/none", "main").contains("no repository o/none"));
  EXPECT_TRUE(message("o/rr", "main").contains("nearest: o/r")) << message("o/rr", "main");
  EXPECT_TRUE(message("p/r", "main").contains("nearest: o/r")) << message("p/r", "main");
  EXPECT_TRUE(message("o/r", "v9").contains("no such revision"));
  server_.RequireToken("hf_x");
  EXPECT_TRUE(message("o/r", "main").contains("gated")) << message("o/r", "main");
  EXPECT_TRUE(message("o/r", "main").contains("HF_TOKEN"));
}

TEST_F(HubClientTest, TooManyRequestsAreTriedAgain) {
  server_.OnReply([](const HubServer::Asked&, HubServer::Answer& answer, size_t n) {
    if (n < 2) answer = {.status = 429, .headers = {{"Retry-After", "0"}}};
  });
  HubClient client = Client();
  EXPECT_TRUE(client.Files("o/r", "main"));
  EXPECT_EQ(server_.asked().size(), 4);
}

TEST_F(HubClientTest, TriesAndWaitsHaveAnEnd) {
  server_.OnReply(
      [](const HubServer::Asked&, HubServer::Answer& answer, size_t) { answer = {.status = 503}; });
  HubClient client = Client();
  EXPECT_TRUE(client.Files("o/r", "main").error().message.contains("status 503"));
  EXPECT_EQ(server_.asked().size(), 4);
  server_.OnReply([](const HubServer::Asked&, HubServer::Answer& answer, size_t) {
    answer = {.status = 429, .headers = {{"Retry-After", "7200"}}};
  });
  const auto listing = client.Files("o/r", "main");
  EXPECT_TRUE(listing.error().message.contains("7200 seconds")) << listing.error().message;
}

TEST_F(HubClientTest, CutRepliesAreTriedAgain) {
  server_.OnReply([](const HubServer::Asked&, HubServer::Answer& answer, size_t n) {
    if (n == 0) answer.cut_after = 3;
  });
  HubClient client = Client();
  EXPECT_TRUE(client.Files("o/r", "main"));
}

TEST_F(HubClientTest, AServerWithoutPartsIsRefusedAndNotRead) {
  server_.OnReply([&](const HubServer::Asked& asked, HubServer::Answer& answer, size_t) {
    if (asked.is_for_content()) answer = {.body = model_};
  });
  HubClient client = Client();
  EXPECT_TRUE(ReadText(client, "m-Q4_K_M.gguf", 8, 8).contains("cannot give a part"));
}

TEST_F(HubClientTest, ForeignAndHugeRepliesAreErrors) {
  const auto message = [&](const HubServer::Answer& with) {
    server_.OnReply(
        [with](const HubServer::Asked&, HubServer::Answer& answer, size_t) { answer = with; });
    HubClient client = Client();
    const auto listing = client.Files("o/r", "main");
    return listing ? "" : listing.error().message;
  };
  EXPECT_TRUE(message({.body = "<html>log in to the network"}).contains("hub's language"));
  EXPECT_TRUE(message({.body = std::string(9'000'000, ' ')}).contains("more than 4.0 MiB"));
  EXPECT_TRUE(message({.status = 302, .headers = {{"Location", "/api/models/o/r"}}})
                  .contains("from address to address"));
  EXPECT_TRUE(message({.status = 302, .headers = {{"Location", "file:///etc/passwd"}}})
                  .contains("no address"));
}

TEST_F(HubClientTest, NoServerIsASentence) {
  HubSettings settings{.endpoint = "http://127.0.0.1:1"};
  auto client = HubClient::Create(settings, stop_, {}, QuickRetries());
  ASSERT_TRUE(client);
  const auto listing = client->Files("o/r", "main");
  ASSERT_FALSE(listing);
  EXPECT_TRUE(listing.error().message.contains("cannot reach http://127.0.0.1:1"))
      << listing.error().message;
}

TEST_F(HubClientTest, OfflineAsksNobody) {
  HubSettings settings = server_.Settings("");
  settings.is_offline = true;
  auto client = HubClient::Create(settings, stop_);
  ASSERT_TRUE(client);
  EXPECT_TRUE(client->Files("o/r", "main").error().message.contains("offline"));
  EXPECT_TRUE(server_.asked().empty());
}

TEST_F(HubClientTest, AStopEndsTheWait) {
  server_.OnReply([&](const HubServer::Asked&, HubServer::Answer& answer, size_t) {
    answer = {.status = 429, .headers = {{"Retry-After", "2"}}};
    stop_.Request();
  });
  HubClient client = Client();
  EXPECT_EQ(client.Files("o/r", "main").error().code, Errc::kInterrupted);
}

}  // namespace
}  // namespace moestro
