// SPDX-License-Identifier: MIT
#include "serve/http_server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "serve/body_room.h"
#include "tests/support/socket_client.h"

namespace moestro {
namespace {

using namespace std::chrono_literals;

class HttpServerTest : public ::testing::Test {
 protected:
  void SetUp() override { Start({.port = 0, .most_body = 1000, .patience = 2}); }
  void Start(HttpOptions options) {
    HttpHandlers handlers{.admit = [this](const HttpRequest& request) -> std::optional<HttpReply> {
                            if (request.path != "/secret") return std::nullopt;
                            ++refused_;
                            return HttpReply{.status = 401, .body = "no"};
                          },
                          .answer = [this](const HttpRequest& request) { return Answer(request); },
                          .refuse =
                              [](int status, std::string_view message) {
                                return std::to_string(status) + ": " + std::string(message);
                              }};
    auto server = HttpServer::Listen(std::move(options), std::move(handlers));
    ASSERT_TRUE(server) << server.error().message;
    server_ = *std::move(server);
  }
  HttpReply Answer(const HttpRequest& request) {
    ++answered_;
    if (request.path == "/wait") {
      while (!request.is_gone()) std::this_thread::sleep_for(5ms);
      ++missed_;
      return {.body = "late"};
    }
    if (request.path == "/header") {
      return {.body = "[" + request.body + "]" + request.header("cookie").value_or("") + "]"};
    }
    if (request.path == "/stream") {
      return {.type = "text/event-stream", .stream = [this](HttpStream& out) {
                while (out.Write("data: x\n\n") && out.is_open()) std::this_thread::sleep_for(5ms);
                ++missed_;
              }};
    }
    return {.body = request.method + " " + request.path + " [" + request.body + "]"};
  }

  std::unique_ptr<HttpServer> server_;
  std::atomic<int> answered_ = 0;
  std::atomic<int> refused_ = 0;
  std::atomic<int> missed_ = 0;
};

TEST_F(HttpServerTest, GivesTheHandlerTheBodyAndTheClientTheReply) {
  const SocketClient client(server_->port());
  ASSERT_TRUE(client.Send(Post("/a%20b?x=1", "hello")));
  const std::string reply = client.ReceiveUntil("]");
  EXPECT_TRUE(reply.starts_with("HTTP/1.1 200 OK\r\n")) << reply;
  EXPECT_TRUE(reply.ends_with("\r\n\r\nPOST /a b [hello]")) << reply;
}

TEST_F(HttpServerTest, OfPipelinedRequestsTheFirstIsAnsweredAndTheClientToldToAskAgain) {
  const SocketClient client(server_->port());
  ASSERT_TRUE(client.Send(Post("/1", "a") + Post("/2", "b") + Post("/3", "c")));
  const std::string all = client.ReceiveAll();
  EXPECT_TRUE(all.contains("\r\nConnection: close\r\n")) << all;
  EXPECT_TRUE(all.ends_with("POST /1 [a]")) << all;
  EXPECT_EQ(answered_, 1);
}

TEST_F(HttpServerTest, RefusesALongBodyWithoutReadingIt) {
  const SocketClient client(server_->port());
  ASSERT_TRUE(client.Send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n"));
  const std::string reply = client.ReceiveUntil("1000)");
  EXPECT_TRUE(reply.starts_with("HTTP/1.1 413")) << reply;
  EXPECT_TRUE(reply.contains("413: a body of 1001 bytes is too long")) << reply;
  EXPECT_EQ(answered_, 0);
}

// Whoever still sends what is refused gets the reply all the same, and then the connection ends.
TEST_F(HttpServerTest, AClientThatStillSendsGetsTheRefusal) {
  Start({.port = 0, .most_body = 1000, .patience = 600});
  for (int i = 0; i < 20; ++i) {
    const SocketClient client(server_->port());
    client.Send(Post("/", std::string(size_t{4} << 20U, 'x')));
    EXPECT_TRUE(client.ReceiveAll().starts_with("HTTP/1.1 413")) << i;
  }
}

TEST_F(HttpServerTest, RefusesALongChunkedBody) {
  const SocketClient client(server_->port());
  ASSERT_TRUE(client.Send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"));
  const std::string chunk = "200\r\n" + std::string(512, 'x') + "\r\n";
  client.Send(chunk + chunk + chunk + "0\r\n\r\n");
  EXPECT_TRUE(client.ReceiveUntil("long").starts_with("HTTP/1.1 413"));
  EXPECT_EQ(answered_, 0);
}

TEST_F(HttpServerTest, RefusesTooManyHeaders) {
  std::string lines;
  for (int i = 0; i < 10000; ++i) lines += "x-" + std::to_string(i) + ": 1\r\n";
  const SocketClient client(server_->port());
  client.Send("GET / HTTP/1.1\r\nHost: x\r\n" + lines + "\r\n");
  EXPECT_TRUE(client.ReceiveUntil("\r\n").starts_with("HTTP/1.1 431"));
  EXPECT_EQ(answered_, 0);
}

TEST_F(HttpServerTest, RefusesTooManyBytesOfHeaders) {
  const SocketClient client(server_->port());
  const std::string value(6000, 'v');
  client.Send("GET / HTTP/1.1\r\nHost: x\r\na: " + value + "\r\nb: " + value + "\r\nc: " + value +
              "\r\n\r\n");
  EXPECT_TRUE(client.ReceiveUntil("\r\n").starts_with("HTTP/1.1 431"));
}

TEST_F(HttpServerTest, TakesALongHeaderWholeAndTheBodyAfterIt) {
  const std::string value(10240, 'v');
  const SocketClient client(server_->port());
  ASSERT_TRUE(client.Send(Post("/header", "hello", "Cookie: " + value + "\r\n")));
  const std::string reply = client.ReceiveAll();
  EXPECT_TRUE(reply.starts_with("HTTP/1.1 200")) << reply;
  EXPECT_TRUE(reply.ends_with("[hello]" + value + "]")) << reply;
}

TEST_F(HttpServerTest, RefusesALineOfMoreThanAllHeadersMayHave) {
  for (const size_t size : {size_t{16 * 1024}, size_t{1000000}}) {
    const SocketClient client(server_->port());
    client.Send("GET / HTTP/1.1\r\nHost: x\r\na: " + std::string(size, 'v') + "\r\n\r\n");
    EXPECT_TRUE(client.ReceiveUntil("\r\n").starts_with("HTTP/1.1 431")) << size;
  }
  EXPECT_EQ(answered_, 0);
}

TEST_F(HttpServerTest, RefusesWhatIsNoRequest) {
  const SocketClient client(server_->port());
  ASSERT_TRUE(client.Send("hello there\r\n\r\n"));
  EXPECT_TRUE(client.ReceiveUntil("\r\n").starts_with("HTTP/1.1 400"));
}

TEST_F(HttpServerTest, AsksBeforeItReadsTheBody) {
  const SocketClient client(server_->port());
  ASSERT_TRUE(client.Send("POST /secret HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n"));
  EXPECT_TRUE(client.ReceiveUntil("no").starts_with("HTTP/1.1 401"));
  EXPECT_EQ(refused_, 1);
  EXPECT_EQ(answered_, 0);
}

TEST_F(HttpServerTest, HalfSentRequestsHoldUpNobody) {
  std::vector<std::unique_ptr<SocketClient>> slow;
  for (int i = 0; i < 100; ++i) {
    slow.push_back(std::make_unique<SocketClient>(server_->port()));
    ASSERT_TRUE(slow.back()->Send("POST / HTTP/1.1\r\nHost: x\r\nContent-Le"));
  }
  const SocketClient client(server_->port());
  ASSERT_TRUE(client.Send(Post("/quick", "")));
  EXPECT_TRUE(client.ReceiveUntil("]").contains("/quick"));
}

TEST_F(HttpServerTest, MissesAClientThatLeavesWhileItWaits) {
  {
    const SocketClient client(server_->port());
    ASSERT_TRUE(client.Send(Post("/wait", "")));
    while (answered_ == 0) std::this_thread::sleep_for(1ms);
  }
  for (int i = 0; i < 400 && missed_ == 0; ++i) std::this_thread::sleep_for(5ms);
  EXPECT_EQ(missed_, 1);
}

TEST_F(HttpServerTest, MissesAClientThatLeavesInTheMiddleOfAStream) {
  {
    const SocketClient client(server_->port());
    ASSERT_TRUE(client.Send(Post("/stream", "")));
    EXPECT_TRUE(client.ReceiveUntil("data: x\n\n").contains("text/event-stream"));
  }
  for (int i = 0; i < 400 && missed_ == 0; ++i) std::this_thread::sleep_for(5ms);
  EXPECT_EQ(missed_, 1);
}

TEST_F(HttpServerTest, EndsSoonThoughClientsNeitherSendNorRead) {
  server_.reset();
  Start({.port = 0, .patience = 60});
  const SocketClient half(server_->port());
  ASSERT_TRUE(half.Send("GET / HT"));
  const SocketClient idle(server_->port());
  ASSERT_TRUE(idle.Send(Post("/", "")));
  idle.ReceiveUntil("]");
  const auto began = std::chrono::steady_clock::now();
  server_.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - began, 20s);
}

TEST_F(HttpServerTest, SaysWhichPortIsTaken) {
  const auto second = HttpServer::Listen({.port = server_->port()}, {});
  ASSERT_FALSE(second);
  EXPECT_TRUE(second.error().message.contains(std::to_string(server_->port())))
      << second.error().message;
}

// Two bodies of three quarters of what all may take.
TEST_F(HttpServerTest, BodiesThatTakeTooMuchTogetherAreRefused) {
  constexpr size_t kAll = size_t{1} << 20U;
  constexpr size_t kBytes = kAll * 3 / 4;
  Start({.port = 0, .most_body = kAll, .patience = 600});
  const std::string body(kBytes, 'x');
  {
    const SocketClient first(server_->port());
    ASSERT_TRUE(first.Send(Post("/wait", body)));
    while (answered_ == 0) std::this_thread::sleep_for(1ms);
    const SocketClient second(server_->port());
    second.Send(Post("/a", body));
    const std::string refused = second.ReceiveAll();
    EXPECT_TRUE(refused.starts_with("HTTP/1.1 503")) << refused.substr(0, 200);
    EXPECT_TRUE(refused.contains("\r\nRetry-After: 1\r\n")) << refused.substr(0, 200);
    const SocketClient small(server_->port());
    ASSERT_TRUE(small.Send(Post("/b", std::string(BodyRoom::kFree, 'x'))));
    EXPECT_TRUE(small.ReceiveAll().starts_with("HTTP/1.1 200")) << "small ones pass";
  }
  std::string reply;
  for (int i = 0; i < 1000 && !reply.starts_with("HTTP/1.1 200"); ++i) {
    const SocketClient next(server_->port());
    next.Send(Post("/c", body));
    reply = next.ReceiveAll();
  }
  EXPECT_TRUE(reply.starts_with("HTTP/1.1 200")) << "when the first has gone there is room again";
}

}  // namespace
}  // namespace moestro
