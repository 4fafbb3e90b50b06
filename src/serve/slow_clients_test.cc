// SPDX-License-Identifier: MIT
// Clients that are slow on purpose, beside good ones, all from one address.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "serve/http_server_testing.h"
#include "tests/support/socket_client_testing.h"

namespace moestro {
namespace {

using namespace std::chrono_literals;

// A clock that the test moves.
class SlowClientsTest : public HttpServerTest {
 protected:
  void SetUp() override {
    Start({.port = 0, .most_body = size_t{1} << 20U, .kept_paths = {"/health"}, .clock = [this] {
             return seconds_.load();
           }});
  }
  std::vector<std::unique_ptr<SocketClient>> Open(int n, const std::string& beginning) const {
    std::vector<std::unique_ptr<SocketClient>> clients;
    for (int i = 0; i < n; ++i) {
      clients.push_back(std::make_unique<SocketClient>(server_->port()));
      clients.back()->Send(beginning);
    }
    return clients;
  }
  std::string Ask(const std::string& request) const {
    const SocketClient client(server_->port());
    return client.Send(request) ? client.ReceiveAll() : "";
  }
  // Lets threads of earlier connections read the sent bytes: a server that answers a hundred later
  // requests has let these threads run.
  void Settle() const {
    for (int i = 0; i < 100; ++i) EXPECT_FALSE(Ask(Get("/")).empty());
  }
  std::atomic<double> seconds_ = 1.0;
};

constexpr const char* kBodyBegins = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n";

TEST_F(SlowClientsTest, ThreeHundredWithoutACompleteHeadKeepNobodyOut) {
  for (const std::string beginning : {"", "G", "GET / HTTP/1.1\r\nHo", "\x16\x03\x01\x02"}) {
    const auto slow = Open(300, beginning);
    for (int i = 0; i < 20; ++i) {
      EXPECT_TRUE(Ask(Post("/a", "x")).ends_with("POST /a [x]")) << i;
      EXPECT_TRUE(Ask(Get("/health")).ends_with("GET /health []")) << i;
    }
  }
}

TEST_F(SlowClientsTest, ThreeHundredSlowBodiesKeepNobodyOutForLong) {
  const auto slow = Open(256, kBodyBegins);
  while (asked_ < 256) std::this_thread::sleep_for(1ms);
  for (int i = 0; i < 44; ++i) {
    const std::string refused = Ask(kBodyBegins);
    EXPECT_TRUE(refused.starts_with("HTTP/1.1 503")) << refused;
    EXPECT_TRUE(refused.contains("\r\nRetry-After: 1\r\n")) << refused;
    const std::string health = Ask(Get("/health"));
    EXPECT_TRUE(health.ends_with("GET /health []")) << health;
  }
  seconds_ = 3.5;  // slow ones are known by now
  for (int i = 0; i < 44; ++i) {
    const std::string reply = Ask(Post("/a", "x"));
    EXPECT_TRUE(reply.ends_with("POST /a [x]")) << reply;
  }
  seconds_ = 12.0;
  for (const auto& client : slow) EXPECT_TRUE(client->ReceiveAll().starts_with("HTTP/1.1 408"));
}

TEST_F(SlowClientsTest, ASlowHeadIsEnded) {
  const SocketClient silent(server_->port());
  const SocketClient line(server_->port());
  ASSERT_TRUE(line.Send("GET / HT"));
  const SocketClient fields(server_->port());
  ASSERT_TRUE(fields.Send("GET / HTTP/1.1\r\nHost: x\r\nAcc"));
  Settle();
  seconds_ = 11.5;
  EXPECT_TRUE(line.ReceiveAll().starts_with("HTTP/1.1 408 "));
  const std::string told = fields.ReceiveAll();
  EXPECT_TRUE(told.starts_with("HTTP/1.1 408 ")) << told;
  EXPECT_TRUE(told.ends_with("408: the request came too slowly")) << told;
  silent.ReceiveAll();
}

TEST_F(SlowClientsTest, ABodyThatTricklesIsEnded) {
  const SocketClient slow(server_->port());
  ASSERT_TRUE(slow.Send(kBodyBegins));
  const SocketClient chunked(server_->port());
  ASSERT_TRUE(
      chunked.Send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n"));
  while (asked_ < 2) std::this_thread::sleep_for(1ms);
  seconds_ = 11.5;
  EXPECT_TRUE(slow.ReceiveAll().starts_with("HTTP/1.1 408 "));
  EXPECT_TRUE(chunked.ReceiveAll().starts_with("HTTP/1.1 408 "));
}

// A byte every two seconds buys neither a head nor a body more time.
TEST_F(SlowClientsTest, SingleBytesBuyNoTime) {
  const SocketClient head(server_->port());
  ASSERT_TRUE(head.Send("GET / HTTP/1.1\r\nHost: x\r\na: "));
  const SocketClient body(server_->port());
  ASSERT_TRUE(body.Send(kBodyBegins));
  while (asked_ < 1) std::this_thread::sleep_for(1ms);
  Settle();
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(head.Send("v") && body.Send("v")) << i;
    Settle();
    seconds_ = seconds_ + 2.0;
  }
  seconds_ = 11.5;
  EXPECT_TRUE(head.ReceiveAll().starts_with("HTTP/1.1 408 "));
  EXPECT_TRUE(body.ReceiveAll().starts_with("HTTP/1.1 408 "));
}

TEST_F(SlowClientsTest, AReplyThatIsNotReadIsEnded) {
  const SocketClient client(server_->port());
  ASSERT_TRUE(client.Send(Post("/flood", "")));
  while (written_ == 0) std::this_thread::yield();
  // The server's thread may not wait yet, so time goes on until the connection is ended.
  while (missed_ == 0) {
    seconds_ = seconds_ + 0.1;
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_GT(seconds_, 30.0);
}

TEST_F(SlowClientsTest, AnIdleConnectionStaysForAMinute) {
  const SocketClient client(server_->port());
  ASSERT_TRUE(client.Send(KeptGet("/1")));
  client.ReceiveUntil("]");
  seconds_ = 55.0;
  ASSERT_TRUE(client.Send(KeptGet("/2")));
  EXPECT_TRUE(client.ReceiveUntil("]").contains("/2"));
  Settle();
  seconds_ = 200.0;
  EXPECT_EQ(client.ReceiveAll(), "");
}

}  // namespace
}  // namespace moestro
