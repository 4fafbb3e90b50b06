// SPDX-License-Identifier: MIT
#include "base/output_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/number.h"
#include "base/text.h"
#include "tests/support/file_size_limit_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

std::vector<std::byte> Pattern(size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>((i * 7 + i / 251) & 0xff);
  return bytes;
}

TEST(OutputFile, AppearsUnderItsNameOnlyWhenPublished) {
  const TempFolder folder;
  const std::string path = folder.File("a.bin");
  {
    Result<OutputFile> file = OutputFile::Create(path);
    ASSERT_TRUE(file.has_value()) << file.error().message;
    ASSERT_TRUE(file->Write(Pattern(1000)).has_value());
    EXPECT_FALSE(std::filesystem::exists(path));
    ASSERT_TRUE(file->Publish().has_value());
    EXPECT_TRUE(std::filesystem::exists(path));
    file->Keep();
  }
  EXPECT_EQ(std::filesystem::file_size(path), 1000U);
}

TEST(OutputFile, KeepsEveryByteAcrossFlushWindows) {
  const TempFolder folder;
  const std::string path = folder.File("large.bin");
  const std::vector<std::byte> part = Pattern(3 * kMiB + 17);
  Result<OutputFile> file = OutputFile::Create(path);
  ASSERT_TRUE(file.has_value());
  constexpr size_t kParts = 20;  // more than three windows
  for (size_t i = 0; i < kParts; ++i) ASSERT_TRUE(file->Write(part).has_value());
  ASSERT_TRUE(file->Publish().has_value());
  file->Keep();
  const std::string all = ReadAll(path);
  ASSERT_EQ(all.size(), kParts * part.size());
  for (size_t i = 0; i < kParts; ++i) {
    ASSERT_EQ(std::memcmp(all.data() + i * part.size(), part.data(), part.size()), 0) << i;
  }
}

TEST(OutputFile, WhatIsSkippedIsZerosAndTakesNoRoom) {
  const TempFolder folder;
  const std::string path = folder.File("sparse.bin");
  Result<OutputFile> file = OutputFile::Create(path);
  ASSERT_TRUE(file.has_value());
  const std::vector<std::byte> part = Pattern(4096);
  ASSERT_TRUE(file->Write(part).has_value());
  ASSERT_TRUE(file->Skip(64 * kMiB).has_value());
  ASSERT_TRUE(file->Write(part).has_value());
  EXPECT_EQ(file->size(), 64 * kMiB + 8192);
  ASSERT_TRUE(file->Publish().has_value());
  file->Keep();
  const std::string all = ReadAll(path);
  ASSERT_EQ(all.size(), 64 * kMiB + 8192);
  EXPECT_EQ(std::memcmp(all.data(), part.data(), part.size()), 0);
  EXPECT_EQ(std::memcmp(all.data() + all.size() - part.size(), part.data(), part.size()), 0);
  EXPECT_EQ(all.find_first_not_of('\0', part.size()), all.size() - part.size() + 1);
  struct stat on_disk = {};
  ASSERT_EQ(stat(path.c_str(), &on_disk), 0);
  EXPECT_LT(static_cast<uint64_t>(on_disk.st_blocks) * 512, kMiB);
}

void Save(const OutputPath& path, std::string_view text) {
  Result<OutputFile> file = OutputFile::Create(path);
  ASSERT_TRUE(file.has_value()) << file.error().message;
  ASSERT_TRUE(file->Write(std::as_bytes(std::span(text))).has_value());
  const Status published = file->Publish();
  ASSERT_TRUE(published.has_value()) << published.error().message;
  file->Keep();
}

TEST(OutputFile, ReplacesNoFolder) {
  const TempFolder folder;
  for (const std::string& path :
       {folder.path().string(), folder.path().string() + "/", std::string()}) {
    const Result<OutputFile> file = OutputFile::Create(path);
    ASSERT_FALSE(file.has_value()) << path;
    EXPECT_EQ(file.error().code, Errc::kIo);
  }
}

TEST(OutputFile, ADeviceIsWrittenToAsItIs) {
  Save("/dev/null", "nothing");
  struct stat info = {};
  ASSERT_EQ(stat("/dev/null", &info), 0);
  EXPECT_TRUE(S_ISCHR(info.st_mode));
  EXPECT_EQ(FreeBytesFor("/dev/null").value(), UINT64_MAX);
  Result<OutputFile> full = OutputFile::Create("/dev/full");
  ASSERT_TRUE(full) << full.error().message;
  EXPECT_EQ(full->Write(Pattern(10)).error().code, Errc::kIo);
}

TEST(OutputFile, APipeIsWrittenToAsItIs) {
  const TempFolder folder;
  const std::string path = folder.File("pipe");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  std::string read;
  std::thread reader([&] { read = ReadAll(path); });
  Save(path, "through");
  reader.join();
  EXPECT_EQ(read, "through");
  EXPECT_TRUE(std::filesystem::is_fifo(path));
}

TEST(OutputFile, AnOpenFileOfTheProcessIsAppendedTo) {
  const TempFolder folder;
  const std::string path = folder.File("log");
  std::ofstream(path) << "before ";
  const int fd = open(path.c_str(), O_WRONLY | O_APPEND);  // as a shell gives it: ">> log"
  ASSERT_GE(fd, 0);
  const std::string link = folder.File("link");
  std::filesystem::create_symlink(Format("/proc/self/fd/{}", fd), link);  // as /dev/stdout is
  Save(link, "this");
  Result<OutputFile> more = OutputFile::Create(Format("/dev/fd/{}", fd));
  ASSERT_TRUE(more && more->Skip(3) && more->Publish());
  close(fd);
  EXPECT_EQ(ReadAll(path), std::string("before this\0\0\0", 14));
  EXPECT_FALSE(OutputFile::Create(link));  // the descriptor is closed
  const int own = open(path.c_str(), O_RDWR | O_CLOEXEC);
  EXPECT_FALSE(OutputFile::Create(Format("/proc/self/fd/{}", own)));  // not inherited
  close(own);
}

TEST(OutputFile, ALinkIsFollowed) {
  const TempFolder folder;
  const TempFolder other;
  std::ofstream(other.File("file")) << "old";
  std::filesystem::create_symlink(other.File("file"), folder.File("first"));
  std::filesystem::create_symlink("first", folder.File("second"));
  Save(folder.File("second"), "new");
  EXPECT_EQ(ReadAll(other.File("file")), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder.File("second")));
  std::filesystem::create_symlink(other.File("missing"), folder.File("dangling"));
  Save(folder.File("dangling"), "made");
  EXPECT_EQ(ReadAll(other.File("missing")), "made");
  std::filesystem::create_symlink("circle", folder.File("circle"));
  EXPECT_FALSE(OutputFile::Create(folder.File("circle")));
  // A link with the name of a file of our own is replaced, not followed.
  Save(OutputPath::OfOwn(folder.File("second")), "own");
  EXPECT_FALSE(std::filesystem::is_symlink(folder.File("second")));
  EXPECT_EQ(ReadAll(other.File("file")), "new");
}

TEST(OutputFile, WhatIsReadIsSparedByWhateverName) {
  const TempFolder folder;
  const std::string input = folder.File("input");
  std::ofstream(input) << "precious";
  std::filesystem::create_directory(folder.File("a"));
  std::filesystem::create_symlink(input, folder.File("link"));
  std::filesystem::create_hard_link(input, folder.File("hard"));
  for (const char* name : {"input", "./a/../input", "link", "hard"}) {
    OutputPath path(folder.File(name));
    path.Spare(std::vector<std::string>{folder.File("other"), input});
    EXPECT_FALSE(OutputFile::Create(path)) << name;
  }
  // Neither file exists yet, and both names lead to one file.
  std::filesystem::create_symlink("new", folder.File("to-new"));
  OutputPath second(folder.File("a/../to-new"));
  second.Spare(folder.File("new"));
  EXPECT_FALSE(second.Check());
  // A name that leads to the spared file only while the file is written.
  OutputPath late(folder.File("late"));
  late.Spare(input);
  Result<OutputFile> file = OutputFile::Create(late);
  ASSERT_TRUE(file);
  std::filesystem::create_hard_link(input, folder.File("late"));
  EXPECT_FALSE(file->Publish());
  EXPECT_EQ(ReadAll(input), "precious");
  // A terminal or a pipe may be read and written.
  OutputPath null("/dev/null");
  null.Spare("/dev/null");
  EXPECT_TRUE(null.Check());
}

TEST(OutputFile, LeftOversOfOtherProcessesHinderNone) {
  const TempFolder folder;
  const std::string path = folder.File("a.bin");
  const std::string left = Format("{}.{}.partial", path, getpid());
  std::ofstream(left) << "of another container's process";
  Save(path, "new");
  EXPECT_EQ(ReadAll(path), "new");
  EXPECT_EQ(ReadAll(left), "of another container's process");
}

TEST(OutputFile, OfTwoWritersAtOnceTheLastOnesFileStaysWhole) {
  const TempFolder folder;
  const std::string path = folder.File("out");
  constexpr size_t kBytes = 3 << 20;
  const auto write = [&](char letter) {
    const std::string text(kBytes, letter);
    for (int i = 0; i < 5; ++i) {
      auto file = OutputFile::Create(OutputPath(path));
      ASSERT_TRUE(file) << file.error().message;
      ASSERT_TRUE(file->Write(std::as_bytes(std::span(text))));
      ASSERT_TRUE(file->Publish());
      file->Keep();
    }
  };
  std::thread other(write, 'b');
  write('a');
  other.join();
  const std::string text = ReadAll(path);
  EXPECT_EQ(text.size(), kBytes);
  EXPECT_EQ(text, std::string(kBytes, text.front()));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()),
                          std::filesystem::directory_iterator()),
            1);
}

TEST(OutputFile, ANameMayBeAsLongAsNamesMayBe) {
  const TempFolder folder;
  for (const std::string& name : {std::string(255, 'n'), std::string(254, 'n') + "\xc3"}) {
    Save(folder.File(name), "long");
    EXPECT_EQ(ReadAll(folder.File(name)), "long");
  }
}

TEST(OutputFile, WithoutKeepNothingStays) {
  const TempFolder folder;
  {
    Result<OutputFile> abandoned = OutputFile::Create(folder.File("a.bin"));
    Result<OutputFile> published = OutputFile::Create(folder.File("b.bin"));
    ASSERT_TRUE(abandoned && published);
    ASSERT_TRUE(abandoned->Write(Pattern(10)).has_value());
    ASSERT_TRUE(published->Publish().has_value());
    const OutputFile moved = std::move(*published);
    EXPECT_FALSE(folder.is_empty());
  }
  EXPECT_TRUE(folder.is_empty());
}

TEST(OutputFile, ReplacesWhatHasItsName) {
  const TempFolder folder;
  const std::string path = folder.File("a.bin");
  for (const size_t size : {1000U, 300U}) {
    Result<OutputFile> file = OutputFile::Create(path);
    ASSERT_TRUE(file && file->Write(Pattern(size)) && file->Publish());
    file->Keep();
    EXPECT_EQ(std::filesystem::file_size(path), size);
  }
}

mode_t ModeOf(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0 ? info.st_mode & 0777U : 0;
}

// The files of the folder that this process has open, by what /proc shows: they may have no name.
std::vector<mode_t> OpenModes(const std::filesystem::path& folder) {
  std::vector<mode_t> modes;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (!gone && target.starts_with(folder.string() + "/")) modes.push_back(ModeOf(entry.path()));
  }
  return modes;
}

TEST(OutputFile, AConversationIsItsOwnersFromTheFirstByteOn) {
  const TempFolder folder;
  const std::string path = folder.File("a.bin");
  const mode_t before = umask(0);  // new files are open to everybody
  std::ofstream(path) << "of an earlier version, and everybody's";
  EXPECT_EQ(ModeOf(path), 0666U);
  {
    Result<OutputFile> file = OutputFile::Create(path, FileReaders::kOwner);
    ASSERT_TRUE(file && file->Write(Pattern(100)));
    EXPECT_EQ(OpenModes(folder.path()), std::vector<mode_t>{0600});
    ASSERT_TRUE(file->Publish());
    EXPECT_EQ(ModeOf(path), 0600U);
    file->Keep();
  }
  EXPECT_EQ(ModeOf(path), 0600U);
  Result<OutputFile> report = OutputFile::Create(folder.File("b.bin"));
  ASSERT_TRUE(report && report->Publish());
  EXPECT_EQ(ModeOf(folder.File("b.bin")), 0666U);
  umask(before);
}

TEST(OutputFile, AFullDiskIsAnErrorThatNamesTheFile) {
  const TempFolder folder;
  const std::string path = folder.File("a.bin");
  {
    const FileSizeLimit limit(64 * kKiB);
    Result<OutputFile> file = OutputFile::Create(path);
    ASSERT_TRUE(file.has_value());
    const Status written = file->Write(Pattern(65 * kKiB));
    ASSERT_FALSE(written.has_value());
    EXPECT_EQ(written.error().code, Errc::kIo);
    EXPECT_NE(written.error().message.find(path), std::string::npos) << written.error().message;
  }
  EXPECT_TRUE(folder.is_empty());
}

TEST(OutputFile, AMissingFolderIsAnError) {
  const TempFolder folder;
  EXPECT_EQ(OutputFile::Create(folder.File("no/a.bin")).error().code, Errc::kIo);
  EXPECT_EQ(FreeBytesFor(folder.File("no/a.bin")).error().code, Errc::kIo);
  EXPECT_GT(FreeBytesFor(folder.File("a.bin")).value(), 0U);
}

}  // namespace
}  // namespace moestro
