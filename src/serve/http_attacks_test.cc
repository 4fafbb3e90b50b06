// SPDX-License-Identifier: MIT
// Clients that are old, hostile, cut off or late, and a machine without descriptors.
#include <gtest/gtest.h>
#include <sys/resource.h>

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

using HttpAttacksTest = HttpServerTest;

std::string AllOf(uint16_t port, const std::string& bytes) {
  const SocketClient client(port);
  client.Send(bytes);
  return client.ReceiveAll();
}

// HTTP/1.0 has no chunks and no 100 (RFC 9112, 6.1; RFC 9110, 15.2).
TEST_F(HttpAttacksTest, AnOldClientGetsWhatItUnderstands) {
  const std::string stream = AllOf(server_->port(), "GET /events HTTP/1.0\r\n\r\n");
  EXPECT_FALSE(stream.contains("Transfer-Encoding")) << stream;
  EXPECT_TRUE(stream.contains("\r\nConnection: close\r\n")) << stream;
  EXPECT_TRUE(stream.contains("\r\n\r\ndata: 1\n\ndata: 2\n\n")) << stream;
  EXPECT_TRUE(stream.ends_with("data: 16\n\n")) << stream;
  const std::string reply =
      AllOf(server_->port(),
            "POST /a HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello");
  EXPECT_TRUE(reply.starts_with("HTTP/1.1 200 OK\r\n")) << reply;
  EXPECT_TRUE(reply.ends_with("POST /a [hello]")) << reply;
}

// A stream to an old client that has ended its side has no chunks either.
TEST_F(HttpAttacksTest, AnOldClientThatHalfClosesGetsTheWholeStream) {
  const SocketClient client(server_->port());
  ASSERT_TRUE(client.Send("GET /events HTTP/1.0\r\n\r\n"));
  client.EndSending();
  const std::string all = client.ReceiveAll();
  EXPECT_TRUE(all.ends_with("data: 16\n\n")) << all;
  EXPECT_FALSE(all.contains("3\r\n:")) << all;
}

// RFC 9110, 8.6: such a reply has no body, and its head does not speak of one.
TEST_F(HttpAttacksTest, AReplyWithoutContentHasNoLength) {
  const SocketClient client(server_->port());
  ASSERT_TRUE(client.Send(KeptGet("/nothing") + Get("/2")));
  const std::string replies = client.ReceiveAll();
  EXPECT_TRUE(replies.starts_with("HTTP/1.1 204 No Content\r\n")) << replies;
  EXPECT_FALSE(replies.substr(0, replies.find("\r\n\r\n")).contains("Content-")) << replies;
  EXPECT_TRUE(replies.ends_with("GET /2 []")) << replies;
}

TEST_F(HttpAttacksTest, HeadHasTheLengthAndNoBody) {
  const SocketClient client(server_->port());
  ASSERT_TRUE(
      client.Send("HEAD /abc HTTP/1.1\r\nHost: x\r\n\r\nHEAD /events HTTP/1.1\r\nHost: "
                  "x\r\n\r\n" +
                  Get("/2")));
  const std::string replies = client.ReceiveAll();
  EXPECT_TRUE(replies.contains("\r\nContent-Length: 12\r\n")) << replies;  // HEAD /abc []
  EXPECT_FALSE(replies.contains("HEAD /abc")) << replies;
  EXPECT_FALSE(replies.contains("data:")) << replies;
  EXPECT_TRUE(replies.ends_with("GET /2 []")) << replies;
}

TEST_F(HttpAttacksTest, OtherMethodsAreRefused) {
  for (const std::string method : {"PUT", "PATCH", "TRACE", "BREW", "get"}) {
    const std::string reply = AllOf(server_->port(), method + " /a HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_TRUE(reply.starts_with("HTTP/1.1 405")) << reply;
    EXPECT_TRUE(reply.contains("\r\nAllow: GET, HEAD, POST, DELETE, OPTIONS\r\n")) << reply;
  }
  EXPECT_EQ(answered_, 0);
}

// A proxy may have read each of these otherwise than this server would.
TEST_F(HttpAttacksTest, NothingIsSmuggledBehindAnAmbiguousHead) {
  const std::string smuggled = KeptPost("/smuggled", "");
  const std::string length = "Content-Length: 5\r\n";
  const std::string chunked = "Transfer-Encoding: chunked\r\n";
  for (const std::string& headers :
       {length + length, length + "content-length: 0\r\n", length + chunked, chunked + length,
        chunked + chunked, std::string("Content-Length: 5, 5\r\n"),
        std::string("Content-Length: 5\r\n 0\r\n"), std::string("Content-Length: 0x5\r\n"),
        std::string("Content-Length: +5\r\n"), std::string("Content-Length:\r\n"),
        std::string("Transfer-Encoding: \x0b"
                    "chunked\r\n"),
        std::string("Transfer-Encoding: chunked, identity\r\n"),
        std::string("Transfer-Encoding\t: chunked\r\n"),
        std::string("X: 1\nTransfer-Encoding: chunked\r\n"),
        std::string("X: 1\rTransfer-Encoding: chunked\r\n"), std::string("X: \0\r\n", 6) + length,
        std::string("Host: y\r\n")}) {
    const std::string reply =
        AllOf(server_->port(), "POST /a HTTP/1.1\r\nHost: x\r\n" + headers + "\r\n" + smuggled);
    EXPECT_TRUE(reply.starts_with("HTTP/1.1 400") || reply.starts_with("HTTP/1.1 501"))
        << headers << reply;
    EXPECT_EQ(reply.find("HTTP/1.1 ", 1), std::string::npos) << headers << reply;
    EXPECT_TRUE(reply.contains("\r\nConnection: close\r\n")) << headers << reply;
  }
  EXPECT_EQ(answered_, 0);
}

TEST_F(HttpAttacksTest, AClientThatEndsInTheMiddleIsToldSo) {
  for (const std::string half : {"G", "\x16\x03\x01\x02", "GET / HTTP/1.1\r\nHo",
                                 "POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhe",
                                 "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel"}) {
    const SocketClient client(server_->port());
    ASSERT_TRUE(client.Send(half));
    client.EndSending();
    EXPECT_TRUE(client.ReceiveAll().starts_with("HTTP/1.1 400")) << half;
  }
}

TEST_F(HttpAttacksTest, AClientThatHalfClosesGetsAllThatItHasSentAhead) {
  const SocketClient client(server_->port());
  ASSERT_TRUE(client.Send(KeptPost("/1", "a") + KeptGet("/2") + KeptPost("/turns", "")));
  client.EndSending();
  const std::string replies = client.ReceiveAll();
  EXPECT_TRUE(replies.contains("POST /1 [a]")) << replies;
  EXPECT_TRUE(replies.contains("GET /2 []")) << replies;
  EXPECT_TRUE(replies.ends_with("sixteen turns")) << replies;
}

TEST_F(HttpAttacksTest, ClientsThatBreakOffAnywhereHoldUpNobody) {
  const std::string all = KeptPost("/a", std::string(500, 'x')) + Post("/stream", "");
  for (int round = 0; round < 3; ++round) {
    for (size_t n = 1; n <= all.size(); n += 13) {
      const SocketClient client(server_->port());
      client.Send(std::string_view(all).substr(0, n));
    }
  }
  EXPECT_TRUE(AllOf(server_->port(), Post("/b", "y")).ends_with("POST /b [y]"));
}

// A refusal to a client that is late and reads nothing is not waited for.
TEST_F(HttpAttacksTest, ALateClientThatReadsNothingHoldsNoThread) {
  std::atomic<double> seconds = 1.0;
  std::atomic<int> ended = 0;
  HttpHandlers handlers{
      .admit = [](const HttpRequest&) { return std::optional<HttpReply>(); },
      .answer = [](const HttpRequest&) { return HttpReply{}; },
      .refuse = [](const RequestRecord&, int,
                   std::string_view) { return std::string(size_t{64} << 20U, 'x'); },
      .ended = [&](const RequestRecord&) { ++ended; }};
  auto server =
      HttpServer::Listen({.port = 0, .clock = [&] { return seconds.load(); }}, std::move(handlers));
  ASSERT_TRUE(server);
  const SocketClient client((*server)->port());
  ASSERT_TRUE(client.Send("GET / HT"));
  for (int i = 0; i < 2000 && ended == 0; ++i) {
    seconds = seconds + 0.1;
    std::this_thread::sleep_for(5ms);
    if (seconds > 20.0) seconds = 20.0;  // before a blocked reply would be late
  }
  EXPECT_EQ(ended, 1);
}

TEST_F(HttpAttacksTest, WithoutDescriptorsClientsWaitAndOpenConnectionsGoOn) {
  const SocketClient open(server_->port());
  ASSERT_TRUE(open.Send(KeptGet("/1")));
  open.ReceiveUntil("[]");
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int lowest_free = dup(0);
  close(lowest_free);
  rlimit one = before;
  one.rlim_cur = static_cast<rlim_t>(lowest_free) + 1;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &one), 0);
  const SocketClient waiting(server_->port());  // takes the last one
  EXPECT_TRUE(open.Send(KeptGet("/2")));
  EXPECT_TRUE(open.ReceiveUntil("[]").ends_with("GET /2 []"));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(waiting.Send(Get("/3")));
  EXPECT_TRUE(waiting.ReceiveAll().ends_with("GET /3 []"));
}

// The end does not wait for a client that reads no more, nor for a body that does not come.
TEST_F(HttpAttacksTest, TheEndComesInTheMiddleOfEverything) {
  std::vector<std::unique_ptr<SocketClient>> clients;
  for (int i = 0; i < 10; ++i) {
    for (const std::string& bytes :
         {Post("/flood", ""), Post("/stream", ""), Post("/wait", ""), KeptGet("/a"),
          std::string("POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nx"), std::string("GE")}) {
      clients.push_back(std::make_unique<SocketClient>(server_->port()));
      ASSERT_TRUE(clients.back()->Send(bytes));
    }
  }
  while (answered_ < 40) std::this_thread::sleep_for(1ms);
  const auto began = std::chrono::steady_clock::now();
  server_.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - began, 20s);
}

}  // namespace
}  // namespace moestro
