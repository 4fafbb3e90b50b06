// SPDX-License-Identifier: MIT
#include "house/passed_reply.h"

#include <gtest/gtest.h>

#include <string>

namespace moestro {
namespace {

// Pushes `text` in pieces of `size` bytes.
std::string Read(PassedReply& reply, std::string_view text, size_t size) {
  std::string body;
  for (; !text.empty(); text.remove_prefix(std::min(size, text.size()))) {
    reply.Push(text.substr(0, size), body);
  }
  return body;
}

TEST(PassedReply, ABodyWithALength) {
  for (size_t size = 1; size < 60; ++size) {
    PassedReply reply;
    EXPECT_EQ(Read(reply,
                   "HTTP/1.1 429 Too Many\r\nContent-Type: application/json\r\nRetry-After: 2\r\n"
                   "content-length: 4\r\nServer: moestro\r\nConnection: close\r\n\r\nbodyrest",
                   size),
              "body");
    EXPECT_TRUE(reply.is_over());
    EXPECT_EQ(reply.status(), 429);
    EXPECT_EQ(reply.type(), "application/json");
    EXPECT_EQ(reply.headers(), (HttpHeaders{{"Retry-After", "2"}}));
    EXPECT_EQ(reply.length(), 4U);
    EXPECT_FALSE(reply.stays());
  }
}

TEST(PassedReply, AStreamInChunks) {
  for (size_t size = 1; size < 60; ++size) {
    PassedReply reply;
    const std::string head =
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
        "Transfer-Encoding: chunked\r\n\r\n";
    EXPECT_EQ(Read(reply, head + "5\r\ndata:\r\n3\r\n x\n\r\n", size), "data: x\n");
    EXPECT_TRUE(reply.has_head());
    EXPECT_FALSE(reply.has_length());
    EXPECT_TRUE(reply.stays());
    EXPECT_FALSE(reply.is_over());
    PassedReply broken = reply;
    broken.End();
    EXPECT_TRUE(broken.is_wrong()) << "the worker died";
    EXPECT_EQ(Read(reply, "0\r\n\r\n", size), "");
    EXPECT_TRUE(reply.is_over());
    reply.End();
    EXPECT_TRUE(reply.is_over());
  }
}

TEST(PassedReply, BodiesWithoutALengthEndWithTheConnection) {
  PassedReply reply;
  EXPECT_EQ(Read(reply, "HTTP/1.1 200 OK\r\n\r\nabc", 100), "abc");
  EXPECT_FALSE(reply.is_over());
  reply.End();
  EXPECT_TRUE(reply.is_over());
}

TEST(PassedReply, NoContentHasNoBody) {
  PassedReply reply;
  Read(reply, "HTTP/1.1 204 No Content\r\n\r\n", 100);
  EXPECT_TRUE(reply.is_over());
}

TEST(PassedReply, WhatIsNoReplyIsAFault) {
  for (const std::string text :
       {"HTTP/2 200\r\n\r\n", "x\r\n\r\n", "HTTP/1.1 abc\r\n\r\n",
        "HTTP/1.1 200 OK\r\nnone\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\nSet-Cookie: b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\rSet-Cookie: b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"}) {
    PassedReply reply;
    Read(reply, text, 7);
    EXPECT_TRUE(reply.is_wrong()) << text;
  }
  PassedReply endless;
  Read(endless, "HTTP/1.1 200 OK\r\nA: " + std::string(PassedReply::kMostHead, 'a'), 4096);
  EXPECT_TRUE(endless.is_wrong());
  PassedReply cut;
  Read(cut, "HTTP/1.1 200 OK\r\n", 100);
  cut.End();
  EXPECT_TRUE(cut.is_wrong());
}

}  // namespace
}  // namespace moestro
