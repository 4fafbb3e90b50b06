// SPDX-License-Identifier: MIT
#include "store/open_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "store/files_testing.h"

namespace moestro {
namespace {

TEST(OpenFiles, EmptyFileAndBlock) {
  const TempDir dir;
  const auto files =
      OpenFiles::Open({dir.Write("empty", {}), dir.Write("full", RandomBytes(5, 1))});
  ASSERT_TRUE(files.has_value()) << files.error().message;
  EXPECT_EQ(files->size(), 2U);
  EXPECT_GE(files->block(), PageBytes());
  EXPECT_EQ(files->block() & (files->block() - 1), 0U);
}

TEST(OpenFiles, BlocksAreAsLargeAsAsked) {
  const TempDir dir;
  const std::string path = dir.Write("full", RandomBytes(100'000, 1));
  for (const uint64_t block : {16 * kKiB, 64 * kKiB}) {
    const auto files = OpenFiles::Open({path}, block);
    ASSERT_TRUE(files.has_value()) << files.error().message;
    EXPECT_EQ(files->block(), block);
    EXPECT_EQ((*files)[0].block, block);
  }
}

TEST(OpenFiles, RefusesWhatIsNotAFile) {
  const TempDir dir;
  const std::string fifo = (dir.path() / "fifo").string();
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  for (const std::string& path : {dir.path().string(), fifo}) {
    const auto files = OpenFiles::Open({path});
    ASSERT_FALSE(files.has_value());
    EXPECT_EQ(files.error().code, Errc::kIo);
    EXPECT_EQ(files.error().message, "cannot read " + path + ": not a regular file");
  }
}

TEST(OpenFiles, UnreadableFileNamesPathAndCause) {
  if (::geteuid() == 0) GTEST_SKIP() << "root reads everything";
  const TempDir dir;
  const auto path = dir.Write("secret", RandomBytes(5, 1));
  ASSERT_EQ(::chmod(path.c_str(), 0), 0);
  const auto files = OpenFiles::Open({path});
  ASSERT_FALSE(files.has_value());
  EXPECT_EQ(files.error().message, "cannot open " + path + ": Permission denied");
}

// Pages of the file that lie in the page cache.
size_t CachedPages(int fd, size_t bytes) {
  void* map = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  EXPECT_NE(map, MAP_FAILED);
  std::vector<unsigned char> in_core(bytes / 4096);
  EXPECT_EQ(::mincore(map, bytes, in_core.data()), 0);
  ::munmap(map, bytes);
  return static_cast<size_t>(std::ranges::count_if(in_core, [](auto c) { return (c & 1) != 0; }));
}

TEST(OpenFiles, ReadingLeavesNothingInThePageCache) {
  constexpr size_t kBytes = 256 * 4096;
  const TempDir dir;
  const auto path = dir.Write("file", RandomBytes(kBytes, 1));
  const UniqueFd sync{::open(path.c_str(), O_RDONLY)};
  ASSERT_EQ(::fsync(sync.get()), 0);  // dirty pages cannot be dropped
  ::posix_fadvise(sync.get(), 0, 0, POSIX_FADV_DONTNEED);
  ASSERT_EQ(CachedPages(sync.get(), kBytes), 0U);
  const auto files = OpenFiles::Open({path});
  ASSERT_TRUE(files.has_value());
  const AlignedMemory memory(kBytes);
  ASSERT_EQ(::pread((*files)[0].fd.get(), memory.span().data(), kBytes, 0),
            static_cast<ssize_t>(kBytes));
  files->DropCache(0, 0, kBytes);
  EXPECT_EQ(CachedPages(sync.get(), kBytes), 0U);
}

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
