// SPDX-License-Identifier: MIT
#include "base/hash.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <vector>

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

std::vector<std::byte> Bytes(size_t n) {
  std::vector<std::byte> bytes(n);
  uint64_t state = 7;
  for (std::byte& b : bytes) {
    state = state * 6364136223846793005 + 1442695040888963407;
    b = static_cast<std::byte>(state >> 56);
  }
  return bytes;
}

// The definition in docs/sequence-format.md, word by word.
uint64_t ByDefinition(const std::vector<std::byte>& bytes, uint64_t seed) {
  constexpr uint64_t kK = 0x9e3779b97f4a7c15;
  const auto mix = [](uint64_t a, uint64_t w) {
    const uint64_t product = (a ^ w) * kK;
    return (product << 29 | product >> 35) * kK;
  };
  uint64_t lanes[8];
  for (uint64_t i = 0; i < 8; ++i) lanes[i] = kK * (i + 1);
  std::vector<std::byte> padded = bytes;
  padded.resize((bytes.size() / 64 + 1) * 64);
  for (size_t j = 0; j < padded.size() / 8; ++j) {
    uint64_t word = 0;
    for (size_t b = 8; b-- > 0;) word = word << 8 | static_cast<uint64_t>(padded[j * 8 + b]);
    lanes[j % 8] = mix(lanes[j % 8], word);
  }
  uint64_t h = mix(mix(kK, seed), bytes.size());
  for (const uint64_t lane : lanes) h = mix(h, lane);
  return (h ^ h >> 32) * kK;
}

TEST(BlockHash, IsWhatTheDocumentSays) {
  for (const size_t n : {0, 1, 7, 8, 63, 64, 65, 128, 4095, 4096, 5000}) {
    const std::vector<std::byte> bytes = Bytes(n);
    EXPECT_EQ(HashBlock(bytes, 3), ByDefinition(bytes, 3)) << n;
  }
  // Files hold numbers made by HashBlock(), so that its results must never change.
  EXPECT_EQ(HashBlock({}, 0), 0xae1492b33dbc3336U);
}

TEST(BlockHash, EveryChangedBitChangesIt) {
  std::vector<std::byte> bytes = Bytes(200);
  std::set<uint64_t> seen{HashBlock(bytes, 1)};
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    const auto mask = static_cast<std::byte>(1U << (bit % 8));
    bytes[bit / 8] ^= mask;
    EXPECT_TRUE(seen.insert(HashBlock(bytes, 1)).second) << bit;
    bytes[bit / 8] ^= mask;
  }
}

TEST(BlockHash, LengthAndSeedCount) {
  std::set<uint64_t> seen;
  for (size_t n = 0; n < 200; ++n) {
    EXPECT_TRUE(seen.insert(HashBlock(std::vector<std::byte>(n), 1)).second) << n;
    EXPECT_TRUE(seen.insert(HashBlock(std::vector<std::byte>(n), 2)).second) << n;
  }
}

// Two blocks that change places, and words that change lanes, are no longer the same.
TEST(BlockHash, OrderCounts) {
  std::vector<std::byte> bytes = Bytes(256);
  const uint64_t before = HashBlock(bytes, 1);
  for (const size_t distance : {8, 64, 128}) {
    std::vector<std::byte> other = bytes;
    for (size_t i = 0; i < 8; ++i) std::swap(other[i], other[i + distance]);
    EXPECT_NE(HashBlock(other, 1), before) << distance;
  }
}

}  // namespace
}  // namespace moestro
