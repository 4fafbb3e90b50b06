// SPDX-License-Identifier: MIT
#include "serve/http_message.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moestro {
namespace {

const std::string kRequestLine = "GET / HTTP/1.1\r\n";

// Reads the bytes at once and byte by byte, and expects the same of both.
RequestHead Read(const std::string& bytes) {
  RequestHead head;
  const size_t taken = head.Push(bytes);
  RequestHead slow;
  size_t slowly = 0;
  for (const char c : bytes) slowly += slow.Push({&c, 1});
  EXPECT_EQ(slowly, taken) << bytes;
  EXPECT_EQ(slow.is_over(), head.is_over()) << bytes;
  EXPECT_EQ(slow.fault().status, head.fault().status) << bytes;
  EXPECT_EQ(slow.fault().message, head.fault().message) << bytes;
  EXPECT_EQ(slow.path(), head.path()) << bytes;
  EXPECT_EQ(slow.length(), head.length()) << bytes;
  return head;
}

int StatusOf(const std::string& bytes) { return Read(bytes).fault().status; }
int StatusWith(const std::string& headers, const std::string& request_line = kRequestLine) {
  return StatusOf(request_line + headers + "\r\n");
}

TEST(RequestHead, HasWhatTheClientSent) {
  const RequestHead head = Read(
      "POST /a%20b/+%?name=x+y%21&e=&name=2&q HTTP/1.1\r\nHost: h\r\nX-One: \t1 \r\nx-one:2\r\n"
      "Content-Length: 5\r\nempty:\r\n\r\n");
  EXPECT_TRUE(head.is_over());
  EXPECT_EQ(head.fault().status, 0) << head.fault().message;
  EXPECT_EQ(head.method(), "POST");
  EXPECT_EQ(head.path(), "/a b/+%");
  EXPECT_TRUE(head.is_current());
  EXPECT_EQ(head.header("x-ONE"), "1");
  EXPECT_EQ(head.count("X-One"), 2U);
  EXPECT_EQ(head.header("Empty"), "");
  EXPECT_EQ(head.header("One"), std::nullopt);
  EXPECT_EQ(head.query("name"), "x y!");
  EXPECT_EQ(head.query("e"), "");
  EXPECT_EQ(head.query("q"), "");
  EXPECT_EQ(head.query("r"), std::nullopt);
  EXPECT_EQ(head.length(), 5U);
  EXPECT_FALSE(head.is_chunked());
}

TEST(RequestHead, TakesNoByteBehindItsEnd) {
  const std::string all = kRequestLine + "a: 1\r\n\r\n";
  RequestHead head;
  EXPECT_EQ(head.Push(all + "body\r\n\r\n"), all.size());
  EXPECT_EQ(head.Push("more"), 0U);
}

TEST(RequestHead, RequestLinesThatAreNoneAreRefused) {
  for (const std::string line :
       {"", "GET", "GET /", "hello there", "GET  / HTTP/1.1", "GET / HTTP/1.1 ", " GET / HTTP/1.1",
        "GET\t/\tHTTP/1.1", "GET / HTTP/1.2", "GET / HTTP/2.0", "GET / http/1.1", "GET / HTTP/1.1x",
        "GET /a b HTTP/1.1", "GET /a#b HTTP/1.1", "GET /\x7f HTTP/1.1", "GET /\x01 HTTP/1.1",
        "G:T / HTTP/1.1", "G\xc3\xa9T / HTTP/1.1", "GET / HTTP/1.1\r"}) {
    EXPECT_EQ(StatusOf(line + "\r\n\r\n"), 400) << line;
  }
  EXPECT_EQ(StatusOf("GET / HTTP/1.1\nHost: x\n\n"), 400);
  EXPECT_EQ(StatusOf(std::string("GET /\0 HTTP/1.1\r\n", 17)), 400);
  EXPECT_EQ(StatusWith("", "GET /caf\xc3\xa9 HTTP/1.0\r\n"), 0);
}

TEST(RequestHead, TheTargetIsAPath) {
  for (const std::string target : {"*", "a", "http://h/a", "h:443", "?a"}) {
    EXPECT_EQ(StatusWith("", "GET " + target + " HTTP/1.1\r\n"), 400) << target;
  }
  EXPECT_EQ(StatusWith("", "OPTIONS * HTTP/1.1\r\n"), 0);
  EXPECT_EQ(StatusWith("", "OPTIONS http://h/a HTTP/1.1\r\n"), 400);
  EXPECT_EQ(StatusWith("", "GET //../%2e%00 HTTP/1.1\r\n"), 0);
}

TEST(RequestHead, ALongTargetIsRefusedAsSoonAsItIsLong) {
  const std::string longest(RequestHead::kMostTarget - 1, 'p');
  EXPECT_EQ(StatusWith("", "GET /" + longest + " HTTP/1.1\r\n"), 0);
  EXPECT_EQ(StatusWith("", "GET /" + longest + "p HTTP/1.1\r\n"), 414);
  const RequestHead endless = Read("GET /" + std::string(100'000, 'p'));
  EXPECT_TRUE(endless.is_over());
  EXPECT_EQ(endless.fault().status, 414);
}

TEST(RequestHead, LinesThatAreNoHeadersAreRefused) {
  for (const std::string line :
       {"no colon\r\n", "a b: 1\r\n", "\x01: 1\r\n", ": 1\r\n", " folded: 1\r\n", "\tfolded\r\n",
        "a : 1\r\n", "a: 1\n", "a: 1\rb: 2\r\n", "a: \x7f\r\n", "\n", "\xc3\xa9: 1\r\n"}) {
    EXPECT_EQ(StatusWith("x: 1\r\n" + line + "y: 2\r\n"), 400) << line;
  }
  EXPECT_EQ(StatusWith(std::string("a: \0\r\n", 6)), 400);
  const RequestHead right = Read(kRequestLine + "x:1\r\nUtf-8: caf\xc3\xa9\tb%41\r\n\r\n");
  EXPECT_EQ(right.fault().status, 0);
  EXPECT_EQ(right.header("utf-8"), "caf\xc3\xa9\tb%41");
}

// RFC 9112, 6.3: what a proxy and this server could understand differently.
TEST(RequestHead, TheEndOfTheBodyIsPlainOrTheRequestIsRefused) {
  const std::string length = "Content-Length: ";
  const std::string encoding = "Transfer-Encoding: ";
  for (const std::string value : {"", "-5", "+5", "5x", "x5", "5 5", "5,5", "5, 5", "0x5", "5.0",
                                  "%35", "99999999999999999999", "18446744073709551616"}) {
    EXPECT_EQ(StatusWith(length + value + "\r\n"), 400) << value;
  }
  EXPECT_EQ(StatusWith(length + std::string(9000, '0') + "5\r\n"), 400);
  EXPECT_EQ(StatusWith(length + "5\r\n" + length + "5\r\n"), 400) << "even if they agree";
  EXPECT_EQ(StatusWith(length + "5\r\n" + length + "6\r\n"), 400);
  EXPECT_EQ(StatusWith(length + "5\r\n" + encoding + "chunked\r\n"), 400);
  EXPECT_EQ(StatusWith(encoding + "chunked\r\n" + length + "0\r\n"), 400);
  for (const std::string value : {"", "gzip", "gzip, chunked", "chunked, chunked", "identity",
                                  "xchunked", "chunkedx", "\vchunked", "\"chunked\""}) {
    EXPECT_NE(StatusWith(encoding + value + "\r\n"), 0) << value;
  }
  EXPECT_EQ(StatusWith(encoding + "chunked\r\n" + encoding + "chunked\r\n"), 501);
  EXPECT_EQ(StatusWith(encoding + "chunked\r\n", "GET / HTTP/1.0\r\n"), 501);
  EXPECT_TRUE(Read(kRequestLine + encoding + "Chunked\r\n\r\n").is_chunked());
  EXPECT_EQ(Read(kRequestLine + length + "0005\r\n\r\n").length(), 5U);
  EXPECT_FALSE(Read("POST / HTTP/1.1\r\n\r\n").has_body());
  EXPECT_EQ(StatusWith(length + "5\r\nContent-Encoding: gzip\r\n"), 415);
  EXPECT_EQ(StatusWith(length + "5\r\nContent-Encoding: Identity\r\n"), 0);
}

TEST(RequestHead, TwoHostsOrOriginsAreRefused) {
  EXPECT_EQ(StatusWith("Host: a\r\nHOST: a\r\n"), 400);
  EXPECT_EQ(StatusWith("Origin: a\r\norigin: b\r\n"), 400);
  EXPECT_EQ(StatusWith("Host: a\r\nOrigin: a\r\n"), 0);
}

TEST(RequestHead, ExactlySixteenKilobytesPassAndAByteMoreDoesNot) {
  const std::string first = "a: " + std::string(8187, 'v') + "\r\n";  // 8192
  const std::string second = "b: " + std::string(8185, 'v') + "\r\n";
  EXPECT_EQ(StatusWith(first + second), 0);
  EXPECT_EQ(StatusWith(first + "b" + second), 431);
  EXPECT_EQ(StatusWith("a: " + std::string(16'377, 'v') + "\r\n"), 0) << "in one line";
  EXPECT_EQ(StatusWith("a: " + std::string(16'378, 'v') + "\r\n"), 431);
}

TEST(RequestHead, AHundredHeadersPassAndOneMoreDoesNot) {
  std::string lines;
  for (size_t i = 0; i < RequestHead::kMostHeaders; ++i) lines += "x: 1\r\n";
  EXPECT_EQ(StatusWith(lines), 0);
  EXPECT_EQ(StatusWith(lines + "y: 1\r\n"), 431);
}

TEST(RequestHead, AHeadWithoutEndIsNotKept) {
  RequestHead head;
  head.Push(kRequestLine);
  size_t taken = 0;
  for (int i = 0; i < 1000; ++i) taken += head.Push(std::string(1000, 'x'));
  EXPECT_EQ(head.fault().status, 431);
  EXPECT_EQ(taken, RequestHead::kMostBytes + 1);
  RequestHead lines;
  lines.Push(kRequestLine);
  for (int i = 0; i < 10'000; ++i) lines.Push("x\r\n");
  EXPECT_TRUE(lines.is_over());
  EXPECT_EQ(lines.fault().status, 400) << "the first fault counts";
}

struct Chunks {
  std::string body;
  size_t taken = 0;
  bool is_over = false;
  bool is_wrong = false;
};

// Reads the bytes at once and byte by byte, and expects the same of both.
Chunks ReadChunks(const std::string& bytes) {
  ChunkReader reader;
  Chunks whole;
  whole.taken = reader.Push(bytes, whole.body);
  whole.is_over = reader.is_over();
  whole.is_wrong = reader.is_wrong();
  ChunkReader slow;
  std::string body;
  size_t taken = 0;
  for (const char c : bytes) taken += slow.Push({&c, 1}, body);
  EXPECT_EQ(slow.is_wrong(), whole.is_wrong) << bytes;
  EXPECT_EQ(taken, whole.taken) << bytes;
  EXPECT_EQ(body, whole.body) << bytes;
  return whole;
}

TEST(ChunkReader, WhatTheStandardSaysPasses) {
  const std::string next = "GET / HTTP/1.1\nwhatever comes next";
  for (const auto& [bytes, body] :
       {std::pair("0\r\n\r\n", ""), std::pair("5\r\nhello\r\n0\r\n\r\n", "hello"),
        std::pair("A\r\n0123456789\r\n00\r\n\r\n", "0123456789"),
        std::pair("3;a=b;c=\"d e\"\r\nabc\r\n1\r\nd\r\n0;x\r\nX-T: 1\r\ny:\r\n\r\n", "abcd"),
        std::pair("1 ;a\r\n\n\r\n0\r\n\r\n", "\n")}) {
    const Chunks chunks = ReadChunks(bytes + next);
    EXPECT_TRUE(chunks.is_over && !chunks.is_wrong) << bytes;
    EXPECT_EQ(chunks.body, body);
    EXPECT_EQ(chunks.taken, std::string_view(bytes).size());
  }
  EXPECT_FALSE(ReadChunks("5\r\nhello\r\n0\r\n").is_over);
}

TEST(ChunkReader, WhatOthersMayReadOtherwiseDoesNot) {
  for (const std::string bytes : {"0x10\r\n",
                                  "+5\r\n",
                                  "-5\r\n",
                                  " 5\r\n",
                                  "5 \r\n",
                                  "5 5\r\n",
                                  "\r\n",
                                  ";a\r\n",
                                  "5\n",
                                  "5;a\n",
                                  "5;a\rb\r\n",
                                  "5\r\nhelloXY",
                                  "5\r\nhello\n",
                                  "5\r\nhello\rX",
                                  "g\r\n",
                                  "5\rX\r\n",
                                  "1000000000000000\r\n",
                                  "00000000000000005\r\n",
                                  "ffffffffffffffffffff\r\n",
                                  "0\r\n\n",
                                  "0\r\nno colon\r\n",
                                  "0\r\na: b\n",
                                  "0\r\n: b\r\n",
                                  "0\r\n folded: b\r\n"}) {
    EXPECT_TRUE(ReadChunks(bytes).is_wrong) << bytes;
  }
  EXPECT_TRUE(ReadChunks("5;" + std::string(ChunkReader::kMostLine, 'x')).is_wrong);
  std::string lines = "0\r\n";
  for (int i = 0; i < 3000; ++i) lines += "x: 12345\r\n";
  EXPECT_TRUE(ReadChunks(lines).is_wrong);
  ChunkReader wrong;
  std::string body;
  wrong.Push("g\r\n", body);
  EXPECT_EQ(wrong.Push("5\r\nhello\r\n", body), 0U) << "once wrong, always";
}

TEST(HttpReplyHead, AValueThatWouldEndALineIsLeftOut) {
  EXPECT_EQ(HttpReplyHead(404, {{"a", "1"}, {"b", "2\r\nX: y"}, {"c", "3\n"}, {"d", ""}}),
            "HTTP/1.1 404 Not Found\r\na: 1\r\nd: \r\n\r\n");
  EXPECT_EQ(HttpReplyHead(599, {}), "HTTP/1.1 599 \r\n\r\n");
  EXPECT_EQ(ChunkOf(std::string(17, 'x')), "11\r\n" + std::string(17, 'x') + "\r\n");
}

}  // namespace
}  // namespace moestro
