// SPDX-License-Identifier: MIT
#include "learned/path_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/binary_file.h"
#include "base/hash.h"
#include "learned/beside_model.h"
#include "learned/path_counter.h"
#include "tests/support/temp_folder_testing.h"

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

}  // namespace
}  // namespace moestro
