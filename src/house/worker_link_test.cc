// SPDX-License-Identifier: MIT
#include "house/worker_link.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "serve/http_server.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

using Outcome = WorkerLink::Outcome;

// A server at a path, as a process of a model has one.
class LinkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = HttpServer::Listen(
        {.host = std::string(kUnixHost) + path()},
        {.admit = [](const HttpRequest&) { return std::nullopt; },
         .answer = [this](HttpRequest& request) { return Answer(request); },
         .refuse = [](const RequestRecord&, int, std::string_view) { return std::string(); }});
    ASSERT_TRUE(server) << server.error().message;
    server_ = *std::move(server);
  }
  HttpReply Answer(HttpRequest& request) {
    if (request.path == "/wait") {
      while (!request.is_gone()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      ++missed_;
    }
    if (request.path == "/stream") {
      return {.stream = [](HttpStream& out) {
        for (int i = 0; i < 100; ++i) out.Write(std::string(1000, 'x'));
      }};
    }
    return {.status = request.path == "/bad" ? 400 : 200, .body = request.body};
  }
  std::string path() const { return folder_.File("s"); }
  static std::string Ask(WorkerLink& link, const std::string& target, const std::string& body,
                         PassedReply& reply) {
    const auto stays = [] { return false; };
    EXPECT_EQ(link.Send("POST " + target + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
                            std::to_string(body.size()) + "\r\n\r\n" + body,
                        stays),
              Outcome::kDone);
    std::string got;
    while (!reply.is_over() && link.Read(reply, got, stays) == Outcome::kDone) {
    }
    return got;
  }

  TempFolder folder_;
  std::atomic<int> missed_ = 0;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(LinkTest, RepliesComeAsTheyWereSent) {
  auto link = WorkerLink::Open(path());
  ASSERT_TRUE(link);
  PassedReply whole;
  EXPECT_EQ(Ask(*link, "/a", "body", whole), "body");
  PassedReply stream;
  EXPECT_EQ(Ask(*link, "/stream", "", stream), std::string(100000, 'x')) << "by the same link";
  PassedReply large;
  const std::string bytes(5 << 20, 'y');
  EXPECT_EQ(Ask(*link, "/a", bytes, large), bytes);
  PassedReply bad;
  Ask(*link, "/bad", "", bad);
  EXPECT_EQ(bad.status(), 400);
  EXPECT_FALSE(bad.stays());
}

TEST_F(LinkTest, AClientThatLeavesIsMissed) {
  auto link = WorkerLink::Open(path());
  ASSERT_TRUE(link);
  EXPECT_EQ(link->Send("GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n", [] { return false; }),
            Outcome::kDone);
  PassedReply reply;
  std::string body;
  EXPECT_EQ(link->Read(reply, body, [] { return true; }), Outcome::kClientGone);
  link.reset();
  for (int i = 0; i < 400 && missed_ == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(missed_, 1);
}

TEST_F(LinkTest, APoolHasLinksThatAreStillGood) {
  double now = 0.0;
  LinkPool pool([&] { return now; });
  const auto use = [&] {
    auto link = pool.Take(path());
    ASSERT_TRUE(link);
    PassedReply reply;
    EXPECT_EQ(Ask(*link, "/a", "x", reply), "x");
    EXPECT_TRUE(reply.stays());
    pool.Give(path(), *std::move(link));
  };
  use();
  use();
  now += 1000.0;
  use();
  EXPECT_FALSE(pool.Take(folder_.File("other")));
  server_.reset();
  EXPECT_FALSE(pool.Take(path())) << "its process has ended";
}

TEST(WorkerLink, NobodyListens) {
  const TempFolder folder;
  EXPECT_FALSE(WorkerLink::Open(folder.File("s")));
  EXPECT_FALSE(WorkerLink::Open(folder.File(std::string(200, 's'))));
  EXPECT_FALSE(WorkerLink::Open(""));
}

}  // namespace
}  // namespace moestro
