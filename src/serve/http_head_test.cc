// SPDX-License-Identifier: MIT
#include "serve/http_head.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace moestro {
namespace {

const std::string kRequestLine = "GET / HTTP/1.1\r\n";

// Pushes the bytes in one piece and byte by byte, and expects the same from both.
std::string Passed(HttpHead& head, const std::string& bytes) {
  HttpHead slow;
  std::string slowly;
  for (const char c : bytes) slowly += slow.Push({&c, 1});
  std::string out = head.Push(bytes);
  EXPECT_EQ(slowly, out);
  EXPECT_EQ(slow.put_aside(), head.put_aside());
  EXPECT_EQ(slow.is_too_long(), head.is_too_long());
  return out;
}

TEST(HttpHead, WhatIsShortPassesAsItIsAndSoDoesTheBody) {
  const std::string all = kRequestLine + "a: 1\r\nb:2\r\n\r\nbody\r\nx: y\r\n\r\n";
  HttpHead head;
  EXPECT_EQ(Passed(head, all), all);
  EXPECT_TRUE(head.is_over());
  EXPECT_FALSE(head.is_too_long());
  EXPECT_EQ(head.Push(std::string(40000, 'x')), std::string(40000, 'x'));
}

TEST(HttpHead, ALongLineIsPutAsideWithoutItsBlanks) {
  const std::string value(10240, 'v');
  HttpHead head;
  EXPECT_EQ(Passed(head, kRequestLine + "a: 1\r\nLong: \t" + value + " \r\nb: 2\r\n\r\n"),
            kRequestLine + "a: 1\r\nb: 2\r\n\r\n");
  ASSERT_EQ(head.put_aside().size(), 1U);
  EXPECT_EQ(head.put_aside().front(), std::pair(std::string("Long"), value));
}

TEST(HttpHead, ALineWithAPercentSignIsPutAsideAsItIs) {
  HttpHead head;
  EXPECT_EQ(Passed(head, "GET /%41 HTTP/1.1\r\na: 1\r\nb: %41%\r\n\r\n%41"),
            "GET /%41 HTTP/1.1\r\na: 1\r\n\r\n%41");
  ASSERT_EQ(head.put_aside().size(), 1U);
  EXPECT_EQ(head.put_aside().front(), std::pair(std::string("b"), std::string("%41%")));
}

TEST(HttpHead, ALineThatIsNoHeaderIsSaidAndGoesToNobody) {
  for (const std::string line :
       {"no colon\r\n", "a b: 1\r\n", "\x01: 1\r\n", ": 1\r\n", " folded: 1\r\n", "a : 1\r\n",
        "a: 1\n", "a: 1\rb: 2\r\n", "a: \x7f\r\n", "\n"}) {
    HttpHead head;
    EXPECT_EQ(Passed(head, kRequestLine + "x: 1\r\n" + line + "y: 2\r\n\r\n"),
              kRequestLine + "x: 1\r\ny: 2\r\n\r\n");
    EXPECT_TRUE(head.is_malformed()) << line;
    EXPECT_TRUE(head.put_aside().empty());
  }
  HttpHead right;
  Passed(right, kRequestLine + "x:1\r\nEmpty:\r\nUtf-8: caf\xc3\xa9\tb\r\n\r\n");
  EXPECT_FALSE(right.is_malformed());
}

// Whether the whole body passes, byte by byte and at once.
bool PassAsChunks(const std::string& body) {
  ChunkFrames whole;
  ChunkFrames bytewise;
  bool is_right = true;
  for (const char c : body) is_right = bytewise.Push({&c, 1});
  EXPECT_EQ(whole.Push(body), is_right) << body;
  return is_right;
}

TEST(ChunkFrames, WhatTheStandardSaysPasses) {
  for (const std::string body :
       {"0\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n", "A\r\n0123456789\r\n00\r\n\r\n",
        "3;a=b;c=\"d e\"\r\nabc\r\n0;x\r\nX-T: 1\r\ny:\r\n\r\n", "1 ;a\r\n\n\r\n0\r\n\r\n",
        "0\r\n\r\nGET / HTTP/1.1\nwhatever comes next"}) {
    EXPECT_TRUE(PassAsChunks(body)) << body;
  }
}

TEST(ChunkFrames, WhatOthersMayReadOtherwiseDoesNot) {
  for (const std::string body : {"0x10\r\n",
                                 "+5\r\n",
                                 "-5\r\n",
                                 " 5\r\n",
                                 "5 \r\n",
                                 "\r\n",
                                 ";a\r\n",
                                 "5\n",
                                 "5;a\n",
                                 "5;a\rb\r\n",
                                 "5\r\nhelloX",
                                 "5\r\nhello\n",
                                 "5\r\nhello\rX",
                                 "g\r\n",
                                 "5\rX",
                                 "1000000000000000\r\n",
                                 "0\r\n\n",
                                 "0\r\nno colon\r\n",
                                 "0\r\na: b\n",
                                 "0\r\n: b\r\n",
                                 "0\r\n folded: b\r\n"}) {
    EXPECT_FALSE(PassAsChunks(body)) << body;
  }
  ChunkFrames endless;
  EXPECT_FALSE(endless.Push("5;" + std::string(ChunkFrames::kMostExtension + 1, 'x')));
  EXPECT_FALSE(endless.Push("5\r\nhello\r\n")) << "once wrong, always";
  ChunkFrames trailers;
  std::string lines = "0\r\n";
  for (int i = 0; i < 3000; ++i) lines += "x: 12345\r\n";
  EXPECT_FALSE(trailers.Push(lines));
}

TEST(HttpHead, ExactlySixteenKilobytesPassAndAByteMoreDoesNot) {
  const std::string first = "a: " + std::string(8187, 'v') + "\r\n";  // 8192
  const std::string second = "b: " + std::string(8185, 'v') + "\r\n";
  HttpHead fits;
  EXPECT_EQ(Passed(fits, kRequestLine + first + second + "\r\n"),
            kRequestLine + first + second + "\r\n");
  EXPECT_FALSE(fits.is_too_long());
  HttpHead exceeds;
  EXPECT_EQ(Passed(exceeds, kRequestLine + first + "b" + second + "\r\nbody"),
            kRequestLine + first + "b" + second + "\r\n");
  EXPECT_TRUE(exceeds.is_too_long());
  EXPECT_EQ(exceeds.Push("more"), "");
}

TEST(HttpHead, ALineWithoutEndIsNotKept) {
  HttpHead head;
  head.Push(kRequestLine);
  std::string out;
  for (int i = 0; i < 1000; ++i) out += head.Push(std::string(1000, 'x'));
  EXPECT_TRUE(head.is_too_long());
  EXPECT_EQ(out, "\r\n");
}

}  // namespace
}  // namespace moestro
