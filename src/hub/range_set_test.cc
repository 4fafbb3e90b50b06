// SPDX-License-Identifier: MIT
#include "hub/range_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace moestro {
namespace {

TEST(RangeSetTest, NeighboursBecomeOne) {
  RangeSet set;
  set.Add({10, 20});
  set.Add({30, 40});
  set.Add({5, 5});
  EXPECT_EQ(set.ranges(), (std::vector<ByteRange>{{10, 20}, {30, 40}}));
  set.Add({20, 30});
  EXPECT_EQ(set.ranges(), (std::vector<ByteRange>{{10, 40}}));
  set.Add({0, 100});
  EXPECT_EQ(set.ranges(), (std::vector<ByteRange>{{0, 100}}));
}

TEST(RangeSetTest, Gaps) {
  RangeSet set;
  EXPECT_EQ(set.FirstGap(0, 100), (ByteRange{0, 100}));
  set.Add({0, 10});
  set.Add({20, 30});
  EXPECT_EQ(set.FirstMissing(), 10);
  EXPECT_EQ(set.FirstMissing(25), 30);
  EXPECT_EQ(set.FirstGap(0, 100), (ByteRange{10, 20}));
  EXPECT_EQ(set.FirstGap(20, 100), (ByteRange{30, 100}));
  EXPECT_EQ(set.FirstGap(0, 10), std::nullopt);
  EXPECT_EQ(set.bytes(), 20);
}

// Against a plain array of bytes.
TEST(RangeSetTest, AgreesWithASetOfBytes) {
  std::minstd_rand random(7);
  for (int round = 0; round < 50; ++round) {
    RangeSet set;
    std::vector<bool> bytes(64);
    for (int i = 0; i < 12; ++i) {
      const uint64_t begin = random() % 60;
      const uint64_t end = begin + random() % (64 - begin);
      set.Add({begin, end});
      for (uint64_t b = begin; b < end; ++b) bytes[b] = true;
      uint64_t sum = 0;
      uint64_t last_end = 0;
      for (const ByteRange& range : set.ranges()) {
        EXPECT_TRUE(last_end == 0 || range.begin > last_end);
        last_end = range.end;
        for (uint64_t b = range.begin; b < range.end; ++b) EXPECT_TRUE(bytes[b]);
        sum += range.size();
      }
      EXPECT_EQ(sum, static_cast<uint64_t>(std::ranges::count(bytes, true)));
      uint64_t missing = begin;
      while (missing < 64 && bytes[missing]) ++missing;
      EXPECT_EQ(set.FirstMissing(begin), missing);
    }
  }
}

}  // namespace
}  // namespace moestro
