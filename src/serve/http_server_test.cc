// SPDX-License-Identifier: MIT
#include "serve/http_server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "serve/body_room.h"
#include "serve/http_server_testing.h"
#include "tests/support/socket_client_testing.h"

namespace moestro {
namespace {

using namespace std::chrono_literals;

TEST_F(HttpServerTest, GivesTheHandlerTheBodyAndTheClientTheReply) {
  const SocketClient client(server_->port());
  ASSERT_TRUE(client.Send(Post("/a%20b?x=1", "hello")));
  const std::string reply = client.ReceiveUntil("]");
  EXPECT_TRUE(reply.starts_with("HTTP/1.1 200 OK\r\n")) << reply;
  EXPECT_TRUE(reply.ends_with("\r\n\r\nPOST /a b [hello]")) << reply;
}

size_t Count(std::string_view text, std::string_view part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
  return n;
}

// "": the reply has no such header.
std::string HeaderOf(const std::string& reply, std::string_view name) {
  const std::string begin_of_line = "\r\n" + std::string(name) + ": ";
  const size_t at = reply.find(begin_of_line);
  if (at == std::string::npos) return "";
  const size_t begin = at + begin_of_line.size();
  return reply.substr(begin, reply.find("\r\n", begin) - begin);
}

TEST_F(HttpServerTest, EveryReplyHasTheRequestsIdOrOneOfOurs) {
  const auto ask = [&](const std::string& request) {
    const SocketClient client(server_->port());
    client.Send(request);
    return HeaderOf(client.ReceiveAll(), "X-Request-Id");
  };
  EXPECT_EQ(ask(Get("/a", "X-Request-Id: abc-\"1\"\r\n")), "abc-\"1\"");
  EXPECT_EQ(ask(Post("/secret", "", "x-request-id: 2\r\n")), "2");
  EXPECT_EQ(ask(Get("/stream-end", "X-Request-Id: 3\r\n")), "3");
  for (const std::string& other :
       {Get("/a"), Get("/a", "X-Request-Id: " + std::string(129, 'x') + "\r\n"),
        Get("/a", "X-Request-Id: caf\xc3\xa9\r\n"), std::string("hello there\r\n\r\n")}) {
    const std::string id = ask(other);
    EXPECT_TRUE(id.starts_with("req_")) << other << id;
  }
  while (ended_.load() < 7) std::this_thread::sleep_for(1ms);
  const std::lock_guard lock(records_mutex_);
  EXPECT_EQ(records_[0].id, "abc-\"1\"");
  EXPECT_EQ(records_[0].path, "/a");
  EXPECT_EQ(records_[1].status, 401);
  EXPECT_EQ(records_[6].status, 400);
}

TEST_F(HttpServerTest, AReplyRepeatsTheSessionOfItsRequest) {
  const auto ask = [&](const std::string& request) {
    const SocketClient client(server_->port());
    client.Send(request);
    return client.ReceiveAll();
  };
  const std::string longest(128, '~');
  for (const std::string& session :
       {std::string("a"), std::string("s, \"1\"; 5%0d%0aX-Admin: 1"), longest}) {
    const std::string header = "x-session-id: " + session + "\r\n";
    EXPECT_EQ(HeaderOf(ask(Get("/a", header)), "X-Session-Id"), session);
    EXPECT_EQ(HeaderOf(ask(Post("/secret", "", header)), "X-Session-Id"), session);
    EXPECT_EQ(HeaderOf(ask(Get("/stream-end", header)), "X-Session-Id"), session);
  }
  for (const std::string& other :
       {std::string(), std::string(129, 'x'), std::string(10'000, 'x'), std::string("caf\xc3\xa9"),
        std::string("a\tb"), std::string("a\rX-Admin: 1"), std::string("a\r\nX-Session-Id: b")}) {
    const std::string reply = ask(Get("/a", "X-Session-Id: " + other + "\r\n"));
    EXPECT_FALSE(reply.contains("\r\nX-Session-Id: ")) << reply;
    EXPECT_FALSE(reply.contains("\r\nX-Admin")) << reply;
  }
  EXPECT_FALSE(ask(Get("/a")).contains("X-Session-Id"));
}

// A session belongs to a request, not to the connection.
TEST_F(HttpServerTest, TheNextRequestOfAConnectionHasItsOwnSession) {
  const SocketClient client(server_->port());
  ASSERT_TRUE(client.Send(KeptGet("/1", "X-Session-Id: one\r\n") + KeptGet("/2") +
                          Get("/3", "X-Session-Id: three\r\n")));
  const std::string replies = client.ReceiveAll();
  EXPECT_EQ(Count(replies, "X-Session-Id: "), 2U) << replies;
  EXPECT_LT(replies.find("X-Session-Id: one"), replies.find("GET /1 []")) << replies;
  EXPECT_GT(replies.find("X-Session-Id: three"), replies.find("GET /2 []")) << replies;
}

TEST_F(HttpServerTest, AConnectionStaysForMoreRequests) {
  const SocketClient client(server_->port());
  for (const std::string path : {"/1", "/2", "/3"}) {
    ASSERT_TRUE(client.Send(KeptPost(path, "x")));
    const std::string reply = client.ReceiveUntil("[x]");
    EXPECT_TRUE(reply.contains("\r\nKeep-Alive: timeout=")) << reply;
    EXPECT_FALSE(reply.contains("Connection: close")) << reply;
    ASSERT_TRUE(client.Send(KeptGet(path)));
    EXPECT_TRUE(client.ReceiveUntil("]").ends_with("GET " + path + " []"));
  }
  ASSERT_TRUE(client.Send(Get("/last")));
  const std::string last = client.ReceiveAll();
  EXPECT_TRUE(last.contains("\r\nConnection: close\r\n")) << last;
  EXPECT_EQ(Count(last, "HTTP/1.1 "), 1U) << last;
}

// Each is answered, in order, whatever sizes the bytes come in; also behind a chunked body.
TEST_F(HttpServerTest, RequestsThatAreSentAheadAreAllAnswered) {
  const std::string chunked =
      "POST /2 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
  const std::string all = KeptPost("/1", std::string(900, 'a')) + chunked + KeptGet("/3") +
                          KeptPost("/4", "") + Post("/5", "e");
  for (const size_t size : {size_t{1}, size_t{7}, size_t{4096}, size_t{100000}}) {
    const SocketClient client(server_->port());
    for (size_t at = 0; at < all.size(); at += size) {
      ASSERT_TRUE(client.Send(std::string_view(all).substr(at, size)));
    }
    const std::string replies = client.ReceiveAll();
    EXPECT_EQ(Count(replies, "HTTP/1.1 200 OK"), 5U) << size;
    size_t last = 0;
    for (const std::string part :
         {"POST /1 [aaa", "POST /2 [abcde]", "GET /3 []", "POST /4 []", "POST /5 [e]"}) {
      const size_t at = replies.find(part);
      EXPECT_TRUE(at != std::string::npos && at >= last) << part << " in " << replies;
      last = at;
    }
  }
}

// Bytes behind a refused request might be its body: no byte of them is taken for a request.
TEST_F(HttpServerTest, AfterARefusalTheConnectionVisiblyEnds) {
  const std::string smuggled = KeptPost("/smuggled", "");
  const std::vector<std::string> beginnings = {
      KeptPost("/secret", smuggled),
      "OPTIONS / HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(smuggled.size()) +
          "\r\n\r\n" + smuggled,
      "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
      "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
      "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5x\r\n\r\nhello",
      "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: %35\r\n\r\nhello",
      "POST /a HTTP/1.1\r\nHost: x\r\ncontent-length: " + std::string(9000, '0') + "5\r\n\r\nhello",
      "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chun%6Bed\r\n\r\n0\r\n\r\n",
      "GET /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n",
      "GET /a HTTP/1.0\r\nHost: x\r\n\r\n",
      "hello there\r\n\r\n"};
  for (const std::string& beginning : beginnings) {
    const SocketClient client(server_->port());
    client.Send(beginning + smuggled);
    const std::string all = client.ReceiveAll();
    EXPECT_TRUE(all.contains("\r\nConnection: close\r\n")) << beginning << "\n" << all;
    EXPECT_EQ(Count(all, "HTTP/1.1 "), 1U) << beginning << "\n" << all;
    EXPECT_FALSE(all.contains("POST /smuggled []")) << beginning << "\n" << all;
  }
}

TEST_F(HttpServerTest, RefusesALongBodyWithoutReadingIt) {
  const SocketClient client(server_->port());
  ASSERT_TRUE(client.Send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n"));
  const std::string reply = client.ReceiveUntil("1000)");
  EXPECT_TRUE(reply.starts_with("HTTP/1.1 413")) << reply;
  EXPECT_TRUE(reply.contains("413: a body of 1001 bytes is too long")) << reply;
  EXPECT_EQ(answered_, 0);
}

// A client that still sends what is refused gets the reply, and then the connection ends.
TEST_F(HttpServerTest, AClientThatStillSendsGetsTheRefusal) {
  Start({.port = 0, .most_body = 1000});
  for (int i = 0; i < 20; ++i) {
    const SocketClient client(server_->port());
    client.Send(Post("/", std::string(size_t{4} << 20U, 'x')));
    EXPECT_TRUE(client.ReceiveAll().starts_with("HTTP/1.1 413")) << i;
  }
}

// Time stands still, so the connection ends when the client does.
TEST_F(HttpServerTest, ARefusedBodyIsTakenToItsEnd) {
  Start({.port = 0, .most_body = 1000, .clock = [] { return 1.0; }});
  const SocketClient client(server_->port());
  EXPECT_TRUE(client.Send(Post("/", std::string(size_t{64} << 20U, 'x'))));
  client.EndSending();
  EXPECT_TRUE(client.ReceiveAll().starts_with("HTTP/1.1 413"));
}

TEST_F(HttpServerTest, RefusesALongChunkedBody) {
  const SocketClient client(server_->port());
  ASSERT_TRUE(client.Send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"));
  const std::string chunk = "200\r\n" + std::string(512, 'x') + "\r\n";
  client.Send(chunk + chunk + chunk + "0\r\n\r\n");
  EXPECT_TRUE(client.ReceiveUntil("long").starts_with("HTTP/1.1 413"));
  EXPECT_EQ(answered_, 0);
}

// A balancer before this server that reads a size or a line's end differently takes part of a body
// for a request, or the other way round.
TEST_F(HttpServerTest, RefusesChunksThatOthersMayReadOtherwise) {
  const std::string head = "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string smuggled = KeptPost("/smuggled", "");
  for (const std::string chunks :
       {"0x5\r\nhello\r\n0\r\n\r\n", "+5\r\nhello\r\n0\r\n\r\n", "-5\r\nhello\r\n0\r\n\r\n",
        "5;a\nhello\r\n0\r\n\r\n", "5\nhello\r\n0\r\n\r\n", "5\r\nhello\n0\r\n\r\n",
        "5\r\nhello\r\n0\r\nX: 1\n\r\n", "5;a\rb\r\nhello\r\n0\r\n\r\n"}) {
    for (const bool is_at_once : {true, false}) {
      const SocketClient client(server_->port());
      const std::string all = head + chunks + smuggled;
      if (is_at_once) client.Send(all);
      for (size_t i = 0; !is_at_once && i < all.size(); ++i) client.Send(all.substr(i, 1));
      const std::string reply = client.ReceiveAll();
      EXPECT_TRUE(reply.starts_with("HTTP/1.1 400")) << chunks << "\n" << reply;
      EXPECT_EQ(Count(reply, "HTTP/1.1 "), 1U) << chunks << "\n" << reply;
    }
  }
  EXPECT_EQ(answered_, 0);
  const SocketClient client(server_->port());
  client.Send(head + "3;a=b\r\nabc\r\n0\r\nX-T: 1\r\n\r\n" + Get("/2"));
  const std::string replies = client.ReceiveAll();
  EXPECT_TRUE(replies.contains("POST /a [abc]")) << replies;
  EXPECT_TRUE(replies.contains("GET /2 []")) << replies;
}

TEST_F(HttpServerTest, RefusesHeaderLinesThatAreNone) {
  for (const std::string line :
       {"Content-Length: 5\n", "Transfer-Encoding : chunked\r\n", "X: 1\r\n Content-Length: 5\r\n",
        "no colon\r\n", "Content-Length: 5\rX: 1\r\n"}) {
    const SocketClient client(server_->port());
    client.Send("POST /a HTTP/1.1\r\nHost: x\r\n" + line + "\r\nhello" + Get("/2"));
    const std::string reply = client.ReceiveAll();
    EXPECT_TRUE(reply.starts_with("HTTP/1.1 400")) << line << reply;
    EXPECT_EQ(Count(reply, "HTTP/1.1 "), 1U) << line << reply;
  }
  EXPECT_EQ(answered_, 0);
}

TEST_F(HttpServerTest, RefusesEncodingsOfABodyThatItDoesNotKnow) {
  for (const auto& [version, lines, status] :
       {std::tuple("1.1", "Transfer-Encoding: gzip, chunked\r\n", "501"),
        std::tuple("1.1", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "501"),
        std::tuple("1.1", "Transfer-Encoding: identity\r\n", "501"),
        std::tuple("1.1", "Transfer-Encoding:\r\n", "501"),
        std::tuple("1.0", "Transfer-Encoding: chunked\r\n", "501"),
        std::tuple("1.1", "Transfer-Encoding: CHUNKED\r\n", "200")}) {
    const SocketClient client(server_->port());
    client.Send(std::string("POST /a HTTP/") + version + "\r\nHost: x\r\n" + lines +
                "\r\n1\r\na\r\n0\r\n\r\n");
    EXPECT_EQ(client.ReceiveUntil("\r\n").substr(9, 3), status) << lines;
  }
}

TEST_F(HttpServerTest, RefusesTooManyHeaders) {
  std::string lines;
  for (int i = 0; i < 10000; ++i) lines += "x-" + std::to_string(i) + ": 1\r\n";
  const SocketClient client(server_->port());
  client.Send("GET / HTTP/1.1\r\nHost: x\r\n" + lines + "\r\n");
  EXPECT_TRUE(client.ReceiveUntil("\r\n").starts_with("HTTP/1.1 431"));
  EXPECT_EQ(answered_, 0);
}

TEST_F(HttpServerTest, RefusesAHeaderMoreThanAHundred) {
  for (const auto& [lines, status] : {std::pair(99, "200"), std::pair(100, "431")}) {
    std::string headers;
    for (int i = 0; i < lines; ++i) headers += "x: %\r\n";
    const SocketClient client(server_->port());
    client.Send("GET / HTTP/1.1\r\nHost: x\r\n" + headers + "\r\n");
    EXPECT_EQ(client.ReceiveUntil("\r\n").substr(9, 3), status) << lines;
  }
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

// The server has had no key "a%41".
TEST_F(HttpServerTest, APercentSignInAHeaderStaysAsItIs) {
  const SocketClient client(server_->port());
  for (const std::string value : {"a%41", "%", "100%25", "%0d%0aX-Admin: 1"}) {
    ASSERT_TRUE(client.Send(KeptPost("/header", "x", "Cookie: " + value + "\r\n")));
    const std::string end = "[x]" + value + "]";
    EXPECT_TRUE(client.ReceiveUntil(end).ends_with("\r\n\r\n" + end)) << value;
  }
}

TEST_F(HttpServerTest, RefusesALineOfMoreThanAllHeadersMayHave) {
  for (const size_t size : {size_t{16 * 1024}, size_t{1000000}}) {
    const SocketClient client(server_->port());
    client.Send("GET / HTTP/1.1\r\nHost: x\r\na: " + std::string(size, 'v') + "\r\n\r\n");
    EXPECT_TRUE(client.ReceiveUntil("\r\n").starts_with("HTTP/1.1 431")) << size;
  }
  EXPECT_EQ(answered_, 0);
}

TEST_F(HttpServerTest, RefusesALongTarget) {
  for (const size_t size : {size_t{8192}, size_t{20000}}) {
    const SocketClient client(server_->port());
    client.Send(KeptGet("/" + std::string(size, 'p')));
    const std::string reply = client.ReceiveAll();
    EXPECT_TRUE(reply.starts_with("HTTP/1.1 414")) << size << reply;
    EXPECT_TRUE(reply.contains("\r\nConnection: close\r\n")) << size << reply;
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

// curl sends this field before any body above 1 MB; the field's value is not case-sensitive.
TEST_F(HttpServerTest, AClientThatAsksFirstIsToldToSend) {
  for (const std::string value : {"100-continue", "100-Continue"}) {
    const SocketClient client(server_->port());
    ASSERT_TRUE(client.Send("POST /a HTTP/1.1\r\nHost: x\r\nExpect: " + value +
                            "\r\nContent-Length: 5\r\n\r\n"));
    EXPECT_EQ(client.ReceiveUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
    ASSERT_TRUE(client.Send("hello"));
    const std::string reply = client.ReceiveUntil("]");
    EXPECT_TRUE(reply.starts_with("HTTP/1.1 200 OK\r\n")) << reply;
    EXPECT_TRUE(reply.ends_with("POST /a [hello]")) << reply;
  }
}

TEST_F(HttpServerTest, AClientThatAsksFirstIsRefusedBeforeItSends) {
  const std::string ask = "Host: x\r\nExpect: 100-continue\r\nContent-Length: ";
  const SocketClient known(server_->port());
  ASSERT_TRUE(known.Send("POST /secret HTTP/1.1\r\n" + ask + "5\r\n\r\n"));
  EXPECT_TRUE(known.ReceiveAll().starts_with("HTTP/1.1 401 "));
  const SocketClient large(server_->port());
  ASSERT_TRUE(large.Send("POST /a HTTP/1.1\r\n" + ask + "1001\r\n\r\n"));
  EXPECT_TRUE(large.ReceiveAll().starts_with("HTTP/1.1 413 "));
  EXPECT_EQ(answered_, 0);
}

// The client ends its side after the request and goes on reading, like `nc -N`.
TEST_F(HttpServerTest, AClientThatHalfClosesGetsItsReply) {
  const SocketClient client(server_->port());
  ASSERT_TRUE(client.Send(Post("/turns", "hello")));
  client.EndSending();
  EXPECT_TRUE(client.ReceiveAll().ends_with("\r\n\r\nsixteen turns")) << "a reply that takes long";
  const SocketClient reader(server_->port());
  ASSERT_TRUE(reader.Send(Post("/events", "")));
  reader.EndSending();
  const std::string all = reader.ReceiveAll();
  EXPECT_TRUE(all.contains("data: 16\n\n")) << all;
  EXPECT_TRUE(all.ends_with("0\r\n\r\n")) << all;
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
  Start({.port = 0});
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

// Two bodies, each of three quarters of the most that all bodies may take.
TEST_F(HttpServerTest, BodiesThatTakeTooMuchTogetherAreRefused) {
  constexpr size_t kAll = size_t{1} << 20U;
  constexpr size_t kBytes = kAll * 3 / 4;
  Start({.port = 0, .most_body = kAll});
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
