// SPDX-License-Identifier: MIT
#include "store/extent_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "store/files_testing.h"

namespace moestro {
namespace {

TEST(ExtentReader, GivesTheBytesOfAnyPlace) {
  const TempDir folder;
  const std::vector<std::byte> first = RandomBytes(20'000, 1);
  const std::vector<std::byte> second = RandomBytes(12'345, 2);
  const auto reader = ExtentReader::Open({folder.Write("a", first), folder.Write("b", second)});
  ASSERT_TRUE(reader) << reader.error().message;
  const std::vector<Extent> extents = {{0, 0, 20'000},   {0, 4096, 4096}, {0, 4095, 2},
                                       {1, 12'000, 345}, {1, 7, 1},       {0, 100, 0}};
  for (const Extent& extent : extents) {
    const auto read = reader->Read(extent);
    ASSERT_TRUE(read) << read.error().message;
    const std::vector<std::byte>& file = extent.file == 0 ? first : second;
    EXPECT_TRUE(
        std::ranges::equal(read->bytes, std::span(file).subspan(extent.offset, extent.length)))
        << extent.offset;
  }
}

TEST(ExtentReader, AFileThatIsShorterIsAnError) {
  const TempDir folder;
  EXPECT_EQ(ExtentReader::Open({(folder.path() / "none").string()}).error().code, Errc::kIo);
  const std::string path = folder.Write("a", RandomBytes(20'000, 1));
  const auto reader = ExtentReader::Open({path});
  ASSERT_TRUE(reader) << reader.error().message;
  std::filesystem::resize_file(path, 10'000);
  EXPECT_TRUE(reader->Read({0, 9'000, 1'000}));
  const auto cut = reader->Read({0, 9'000, 1'001});
  ASSERT_FALSE(cut);
  EXPECT_EQ(cut.error().code, Errc::kIo);
  EXPECT_NE(cut.error().message.find(path), std::string::npos) << cut.error().message;
}

}  // namespace
}  // namespace moestro
