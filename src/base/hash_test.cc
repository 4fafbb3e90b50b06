// SPDX-License-Identifier: MIT
#include "base/hash.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace moestro {
namespace {

// The values that the authors of FNV publish.
TEST(Fnv1a, GivesThePublishedValues) {
  Fnv1a hash;
  EXPECT_EQ(hash.value(), 0xcbf29ce484222325U);
  hash.Add("a");
  EXPECT_EQ(hash.value(), 0xaf63dc4c8601ec8cU);
  Fnv1a foobar;
  foobar.Add("foobar");
  EXPECT_EQ(foobar.value(), 0x85944171f73967e8U);
}

TEST(Fnv1a, ANumberIsItsBytesLowestFirst) {
  Fnv1a number;
  number.AddNumber(uint32_t{0x64636261});
  Fnv1a text;
  text.Add("abcd");
  EXPECT_EQ(number.value(), text.value());
}

}  // namespace
}  // namespace moestro
