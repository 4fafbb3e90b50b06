// SPDX-License-Identifier: MIT
#include "model/byte_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/number.h"
#include "model/gguf_file.h"
#include "model/gguf_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

struct Request {
  uint64_t offset = 0;
  uint64_t length = 0;
  bool operator==(const Request&) const = default;
};

// The byte at `offset` is its lowest eight bits.
RangedBytes Counting(uint64_t size, std::vector<Request>& requests) {
  return {"https://hub/model.gguf", size, [&requests](uint64_t offset, uint64_t length) {
            requests.push_back({offset, length});
            std::string bytes(length, '\0');
            for (size_t i = 0; i < length; ++i) bytes[i] = static_cast<char>(offset + i);
            return Result<std::string>(std::move(bytes));
          }};
}

TEST(RangedBytes, RangesDoubleUpToTheMost) {
  std::vector<Request> requests;
  RangedBytes bytes = Counting(uint64_t{1} << 40, requests);
  uint64_t at = 0;
  for (int i = 0; i < 7; ++i) {
    const auto range = bytes.BytesAt(at);
    ASSERT_TRUE(range);
    EXPECT_EQ((*range)[0], static_cast<char>(at));
    at += range->size();
  }
  std::vector<uint64_t> lengths;
  for (const Request& request : requests) lengths.push_back(request.length / kMiB);
  EXPECT_EQ(lengths, (std::vector<uint64_t>{4, 8, 16, 32, 64, 64, 64}));
}

TEST(RangedBytes, WhatIsThereIsNotFetchedAgain) {
  std::vector<Request> requests;
  RangedBytes bytes = Counting(100 * kMiB, requests);
  ASSERT_TRUE(bytes.BytesAt(5));
  ASSERT_TRUE(bytes.BytesAt(7));
  EXPECT_EQ(requests.size(), 1U);
  EXPECT_EQ(bytes.BytesAt(7)->size(), 4 * kMiB - 2);
}

// A long array of numbers is skipped: its bytes are not fetched.
TEST(RangedBytes, AGapIsNotFetched) {
  std::vector<Request> requests;
  RangedBytes bytes = Counting(100 * kMiB, requests);
  ASSERT_TRUE(bytes.BytesAt(0));
  ASSERT_TRUE(bytes.BytesAt(50 * kMiB));
  EXPECT_EQ(requests.back(), (Request{50 * kMiB, 8 * kMiB}));
}

TEST(RangedBytes, EndsWithTheFile) {
  std::vector<Request> requests;
  RangedBytes bytes = Counting(kMiB, requests);
  EXPECT_EQ(bytes.BytesAt(kMiB - 1)->size(), 1U);
}

TEST(RangedBytes, AFailedRangeIsFetchedAgain) {
  int calls = 0;
  RangedBytes bytes("there", kMiB, [&calls](uint64_t, uint64_t length) -> Result<std::string> {
    if (++calls == 1) return Fail(Errc::kIo, "no network");
    return std::string(length, 'x');
  });
  EXPECT_EQ(bytes.BytesAt(0).error().message, "no network");
  EXPECT_TRUE(bytes.BytesAt(0));
}

TEST(RangedBytes, FewerBytesThanAskedForAreAnError) {
  RangedBytes bytes("there", kMiB, [](uint64_t, uint64_t length) -> Result<std::string> {
    return std::string(length - 1, 'x');
  });
  const auto range = bytes.BytesAt(0);
  ASSERT_FALSE(range);
  EXPECT_NE(range.error().message.find("there"), std::string::npos);
}

// The reader passes over each string of an array, and the next one's length lies in another range:
// the fetched part of a directory is bounded all the same.
TEST(RangedBytes, ADirectoryOfHugeStringsIsNotFetchedToItsEnd) {
  constexpr uint64_t kLength = 70 * kMiB;
  RawHeader header(0, 1);
  header.Key("tokenizer.ggml.tokens", GGUF_TYPE_ARRAY).Number(uint32_t{GGUF_TYPE_STRING});
  header.Number(uint64_t{1} << 20);
  uint64_t fetched = 0;
  const OpenBytes open = [&](const std::string& name) -> Result<std::unique_ptr<ByteSource>> {
    return std::make_unique<RangedBytes>(
        name, uint64_t{1} << 60, [&](uint64_t offset, uint64_t length) -> Result<std::string> {
          fetched += length;
          std::string bytes = offset == 0 ? header.bytes() : std::string();
          bytes.append(reinterpret_cast<const char*>(&kLength), sizeof(kLength));
          bytes.resize(length, 'x');
          return bytes;
        });
  };
  const auto file = GgufFile::Open("https://there/model.gguf", open);
  ASSERT_FALSE(file);
  EXPECT_NE(file.error().message.find("goes on after"), std::string::npos) << file.error().message;
  EXPECT_LT(fetched, 512 * kMiB);
}

// A header read in ranges equals the header read from the file.
TEST(RangedBytes, AHeaderElsewhereIsTheFilesOwn) {
  const TempFolder folder;
  const std::string path = folder.path() / "model.gguf";
  GgufBuilder model = SmallMoe("qwen3moe");
  AddByteLevelVocabulary(model);
  model.Write(path);
  const OpenBytes open = [](const std::string& name) -> Result<std::unique_ptr<ByteSource>> {
    TRY(std::unique_ptr<ByteSource> file, OpenFileBytes(name));
    const uint64_t size = file->stamp().size;
    std::shared_ptr<ByteSource> shared = std::move(file);
    return std::make_unique<RangedBytes>(
        name, size, [shared](uint64_t offset, uint64_t length) -> Result<std::string> {
          std::string all;
          while (all.size() < length) {
            TRY(const std::span<const char> bytes, shared->BytesAt(offset + all.size()));
            all.append(bytes.data(), std::min<size_t>(bytes.size(), length - all.size()));
          }
          return all;
        });
  };
  const auto here = GgufFile::Open(path);
  const auto there = GgufFile::Open(path, open);
  ASSERT_TRUE(here);
  ASSERT_TRUE(there) << there.error().message;
  EXPECT_EQ(there->paths(), here->paths());
  EXPECT_EQ(there->file_bytes(), here->file_bytes());
  ASSERT_EQ(there->tensors().size(), here->tensors().size());
  for (size_t i = 0; i < here->tensors().size(); ++i) {
    EXPECT_EQ(there->tensors()[i].name, here->tensors()[i].name);
    EXPECT_EQ(there->tensors()[i].extent, here->tensors()[i].extent);
  }
}

}  // namespace
}  // namespace moestro
