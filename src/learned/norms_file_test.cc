// SPDX-License-Identifier: MIT
#include "learned/norms_file.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <limits>
#include <string>

#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

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
