// SPDX-License-Identifier: MIT
#include "learned/learned_tables.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "base/binary_file.h"
#include "base/hash.h"
#include "core/ids.h"
#include "learned/beside_model.h"
#include "learned/path_counter.h"
#include "tests/support/temp_folder_testing.h"
#include "trace/trace.h"

namespace moestro {
namespace {

// Of `experts`, with two-byte ids from 257 on.
PathFile Small(uint32_t experts) {
  const MoeShape shape{.n_layer = 3, .n_expert = experts, .n_used = 2};
  PathCounter counter(shape);
  for (uint16_t t = 0; t < 12; ++t) {
    std::vector<ExpertId> token;
    for (uint16_t l = 0; l < 3; ++l) {
      token.push_back({static_cast<uint16_t>((t + l) % 3)});
      token.push_back({static_cast<uint16_t>(experts - 1 - (t + l) % 2)});
    }
    counter.Add(token);
  }
  return {.model = {.name = "small.gguf", .fingerprint = 0x1234, .shape = shape},
          .tokens = 12,
          .table = counter.Learn()};
}

class PathFileTest : public testing::Test {
 protected:
  std::string Put(const std::string& bytes) const {
    WriteAll(folder_.File("put.paths"), bytes);
    return folder_.File("put.paths");
  }
  // As a file whose checksum is right.
  std::string PutSealed(std::string bytes) const {
    bytes.resize(bytes.size() - kChecksumBytes);
    Fnv1a sum;
    sum.Add(bytes);
    AppendNumber(bytes, sum.value());
    return Put(bytes);
  }
  std::string SmallBytes() const {
    EXPECT_TRUE(WritePaths(folder_.File("small.paths"), Small(8)));
    return ReadAll(folder_.File("small.paths"));
  }
  TempFolder folder_;
};

TEST_F(PathFileTest, ComesBackAsItWas) {
  for (const uint32_t experts : {4U, 256U, 257U}) {
    const PathFile paths = Small(experts);
    const std::string path = folder_.File("a.paths");
    const auto bytes = WritePaths(path, paths);
    ASSERT_TRUE(bytes) << bytes.error().message;
    EXPECT_EQ(*bytes, std::filesystem::file_size(path));
    const auto read = ReadPaths(path);
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(*read, paths);
  }
  EXPECT_EQ(PathsBeside("x/model.gguf"), "x/model.gguf.paths");
}

TEST_F(PathFileTest, IsRefusedWhenCutShortOrLonger) {
  const std::string bytes = SmallBytes();
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::string path = Put(bytes.substr(0, size));
    const auto read = ReadPaths(path);
    ASSERT_FALSE(read) << size;
    EXPECT_EQ(read.error().code, Errc::kInvalidFile);
    EXPECT_TRUE(read.error().message.starts_with(path)) << read.error().message;
    EXPECT_NE(read.error().message.find("moestro profile"), std::string::npos);
  }
  EXPECT_FALSE(ReadPaths(Put(bytes + "x")));
}

TEST_F(PathFileTest, IsRefusedWhenAByteChanged) {
  const std::string bytes = SmallBytes();
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string bad = bytes;
    bad[at] = static_cast<char>(bad[at] ^ (1 << at % 8));
    EXPECT_FALSE(ReadPaths(Put(bad))) << at;
  }
}

// The writer of a wrong file can also write its checksum. The file may be read as another good one,
// but must not be harmful.
TEST_F(PathFileTest, IsHarmlessWhenTheChecksumFitsAChangedByte) {
  const std::string bytes = SmallBytes();
  size_t refused = 0;
  for (size_t at = 0; at + kChecksumBytes < bytes.size(); ++at) {
    for (const int change : {1, 0xff}) {
      std::string bad = bytes;
      bad[at] = static_cast<char>(bad[at] ^ change);
      const auto read = ReadPaths(PutSealed(bad));
      refused += !read;
      if (!read) continue;
      const MoeShape& shape = read->table.shape();
      std::vector<ExpertId> best(shape.n_used);
      std::vector<float> scores;
      const std::vector<ExpertId> first(1);
      for (size_t l = 1; l < shape.n_layer; ++l) read->table.Rank(l, first, first, best, scores);
    }
  }
  EXPECT_GT(refused, 100U);
}

TEST_F(PathFileTest, HugeCountsAskForNoMemory) {
  const std::string bytes = SmallBytes();
  for (const size_t at : {12U, 16U, 40U, 48U, 56U}) {  // layers, experts, keys, followers, name
    std::string bad = bytes;
    bad.replace(at, 4, "\xff\x0f\x00\x7f", 4);
    EXPECT_FALSE(ReadPaths(PutSealed(bad))) << at;
    bad = bytes;
    bad.replace(at, 2, "\xff\x0f", 2);
    EXPECT_FALSE(ReadPaths(PutSealed(bad))) << at;
  }
}

TEST_F(PathFileTest, OtherFilesAndNewerFormatsAreNamed) {
  std::string bytes = SmallBytes();
  bytes[8] = 2;
  const auto newer = ReadPaths(PutSealed(bytes));
  ASSERT_FALSE(newer);
  EXPECT_EQ(newer.error().code, Errc::kUnsupported);
  EXPECT_NE(newer.error().message.find("update Moestro"), std::string::npos);
  const auto foreign = ReadPaths(Put("MOETRACE and more of it"));
  ASSERT_FALSE(foreign);
  EXPECT_NE(foreign.error().message.find("not a file of paths"), std::string::npos);
  EXPECT_EQ(ReadPaths(folder_.File("none")).error().code, Errc::kIo);
  EXPECT_EQ(ReadPaths(folder_.path().string()).error().code, Errc::kIo);
}

TEST_F(PathFileTest, CannotBeWrittenWhereNoFileBelongs) {
  const PathFile paths = Small(4);
  EXPECT_EQ(WritePaths("/dev/full", paths).error().code, Errc::kIo);
  EXPECT_EQ(WritePaths(folder_.File("none/a.paths"), paths).error().code, Errc::kIo);
  PathFile named = paths;
  named.model.name.assign(5000, 'x');
  EXPECT_EQ(WritePaths(folder_.File("a"), named).error().code, Errc::kInvalidRequest);
  EXPECT_TRUE(folder_.is_empty());
}

TEST_F(PathFileTest, AnotherModelsPathsAreRefused) {
  const PathFile paths = Small(8);
  const std::string path = folder_.File("a.paths");
  ASSERT_TRUE(WritePaths(path, paths));
  const auto read = ReadPathsFor(paths.model, path);
  ASSERT_TRUE(read);
  EXPECT_EQ(**read, paths.table);
  ModelId other = paths.model;
  other.shape.n_expert = 9;
  const auto refused = ReadPathsFor(other, path);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("moestro profile"), std::string::npos);
}

// Two kinds of tokens by turns; in both halves of a layer's experts one is used.
PathCounter Alternating(size_t tokens) {
  Trace trace = *Trace::Create({.model = {.shape = {4, 8, 2}}});
  for (size_t t = 0; t < tokens; ++t) {
    std::vector<ExpertId> experts;
    for (uint16_t l = 0; l < 4; ++l) {
      const auto kind = static_cast<uint16_t>(t % 2);
      experts.push_back({static_cast<uint16_t>((kind + l) % 4)});
      experts.push_back({static_cast<uint16_t>(4 + (kind + 2 * l) % 4)});
    }
    EXPECT_TRUE(trace.Add({.experts = experts}));
  }
  PathCounter counter({.n_layer = 4, .n_expert = 8, .n_used = 2});
  CountTrace(trace, tokens, counter);
  return counter;
}

TEST(LearnPaths, FindsWhatAlwaysFollows) {
  const PathCounter routing = Alternating(50);
  const PathRecall recall = MeasurePaths(routing.Learn(40), routing, {40, 50});
  EXPECT_EQ(recall.paths, 1.0);
  EXPECT_LT(recall.popular, 0.8);
  EXPECT_EQ(recall.repeat, 0.0);
  // Only what was shown is learned.
  EXPECT_EQ(routing.Learn(40), Alternating(40).Learn());
  EXPECT_EQ(routing.Learn(0).keys(), 0U);
}

// Layers 0 and 1 are an encoder's: one layer of each stack follows another.
TEST(LearnPaths, EachStackIsMeasuredWhereTokensGoThrough) {
  PathCounter counter({.n_layer = 4, .n_expert = 8, .n_used = 1, .n_encoder = 2});
  for (uint16_t t = 0; t < 80; ++t) {
    const bool is_source = t % 2 == 0;
    const auto first = static_cast<uint16_t>(t / 2 % 8);
    std::vector<ExpertId> experts(4, ExpertId{60000});
    experts[is_source ? 0 : 2] = {first};
    experts[is_source ? 1 : 3] = {static_cast<uint16_t>((first + (is_source ? 1 : 5)) % 8)};
    counter.Add(experts, is_source);
  }
  const PathRecall recall = MeasurePaths(counter.Learn(), counter, {0, 80});
  EXPECT_EQ(recall.paths, 1.0);
  EXPECT_LT(recall.popular, 0.5);
  EXPECT_EQ(recall.repeat, 0.0);  // the token before is of the other stack
}

TEST(LearnPaths, TakesAsManyTokensAsItIsTold) {
  Trace trace = *Trace::Create({.model = {.shape = {1, 4, 1}}});
  for (uint16_t t = 0; t < 4; ++t) ASSERT_TRUE(trace.Add({.experts = std::vector<ExpertId>{{t}}}));
  PathCounter counter({.n_layer = 1, .n_expert = 4, .n_used = 1});
  CountTrace(trace, 3, counter);
  EXPECT_EQ(counter.tokens(), 3U);
  CountTrace(trace, 100, counter);
  EXPECT_EQ(counter.tokens(), 7U);
  EXPECT_EQ(counter.of(6, 0)[0].value, 3);
}

TEST(LearnPaths, WithoutTokensOrFollowingLayersNothingIsRecalled) {
  const PathCounter routing = Alternating(4);
  EXPECT_EQ(MeasurePaths(routing.Learn(), routing, {2, 2}).paths, 0.0);
  PathCounter flat({.n_layer = 1, .n_expert = 4, .n_used = 1});
  flat.Add(std::vector<ExpertId>{{2}});
  EXPECT_EQ(MeasurePaths(flat.Learn(), flat, {0, 1}).paths, 0.0);
}

class NormsFileTest : public ::testing::Test {
 protected:
  static NormsFile Small() {
    const MoeShape shape{.n_layer = 2, .n_expert = 3, .n_used = 2};
    return {.model = {.name = "m.gguf", .fingerprint = 7, .shape = shape},
            .tokens = 11,
            .norms = {.shape = shape, .values = {1.0F, 2.5F, 0.0F, 4.0F, 5.0F, 6.0F}}};
  }
  std::string Put(const std::string& bytes) const {
    const std::string path = folder_.File("put");
    WriteAll(path, bytes);
    return path;
  }
  std::string Bytes() const {
    const std::string path = folder_.File("small");
    EXPECT_TRUE(WriteNorms(path, Small()));
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  TempFolder folder_;
};

TEST_F(NormsFileTest, ComesBackAsItWas) {
  const auto read = ReadNorms(Put(Bytes()));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->model, Small().model);
  EXPECT_EQ(read->tokens, 11U);
  EXPECT_EQ(read->norms.values, Small().norms.values);
}

TEST_F(NormsFileTest, EveryTruncationAndFlippedByteIsRefused) {
  const std::string whole = Bytes();
  for (size_t n = 0; n < whole.size(); ++n) {
    EXPECT_FALSE(ReadNorms(Put(whole.substr(0, n)))) << n;
    std::string flipped = whole;
    flipped[n] = static_cast<char>(flipped[n] ^ 0x10);
    EXPECT_FALSE(ReadNorms(Put(flipped))) << n;
  }
  EXPECT_FALSE(ReadNorms(Put(whole + "x")));
}

TEST_F(NormsFileTest, WhatIsNoLengthIsRefused) {
  for (const float bad :
       {-1.0F, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    NormsFile norms = Small();
    norms.norms.values[4] = bad;
    ASSERT_TRUE(WriteNorms(folder_.File("bad"), norms));
    const auto read = ReadNorms(folder_.File("bad"));
    ASSERT_FALSE(read);
    EXPECT_NE(read.error().message.find("value 4"), std::string::npos) << read.error().message;
  }
}

TEST_F(NormsFileTest, AnotherModelsNormsAreRefused) {
  const std::string path = Put(Bytes());
  EXPECT_TRUE(ReadNormsFor(Small().model, path));
  ModelId other = Small().model;
  other.fingerprint = 8;
  const auto refused = ReadNormsFor(other, path);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("moestro profile"), std::string::npos);
}

}  // namespace
}  // namespace moestro
