// SPDX-License-Identifier: MIT
#include "serve/http_head.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace moestro {
namespace {

const std::string kRequestLine = "GET / HTTP/1.1\r\n";

// The same in one piece and byte by byte.
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
  const std::string all = kRequestLine + "a: 1\r\nb:2\nnonsense\r\n\r\nbody\r\nx: y\r\n\r\n";
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
  EXPECT_EQ(Passed(head, "GET /%41 HTTP/1.1\r\na: 1\r\nb: %41%\r\n c: %41\r\n\r\n%41"),
            "GET /%41 HTTP/1.1\r\na: 1\r\n c: %41\r\n\r\n%41");
  ASSERT_EQ(head.put_aside().size(), 1U);
  EXPECT_EQ(head.put_aside().front(), std::pair(std::string("b"), std::string("%41%")));
}

TEST(HttpHead, ALongLineThatIsNoHeaderIsLeftToHttplib) {
  for (const std::string begin : {"", "a b:", "\x01:", ":"}) {
    const std::string all = kRequestLine + begin + std::string(9000, 'v') + "\r\n\r\n";
    HttpHead head;
    EXPECT_EQ(Passed(head, all), all);
    EXPECT_TRUE(head.put_aside().empty());
  }
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
