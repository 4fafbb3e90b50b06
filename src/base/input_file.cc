// SPDX-License-Identifier: MIT
#include "base/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/number.h"
#include "base/text.h"

namespace moestro {
namespace {

constexpr size_t kLongestWord = 128;

const char* KindOfFile(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

// Appends the file's beginning to `text`, up to `most` bytes. False on failure with errno set.
bool ReadUpTo(int fd, size_t most, std::string& text) {
  while (text.size() < most) {
    constexpr size_t kPart = 64 * 1024;
    const size_t before = text.size();
    text.resize(before + std::min(kPart, most - before));
    const ssize_t n = ::read(fd, text.data() + before, text.size() - before);
    text.resize(before + static_cast<size_t>(std::max<ssize_t>(n, 0)));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n == 0;
  }
  return true;
}

}  // namespace

Result<UniqueFd> OpenRegularFile(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat info = {};
  if (fd.get() < 0) {
    const int why = errno;
    if (why == ENXIO) return Fail(Errc::kIo, "cannot read {}: it is not a file", path);
    return Fail(Errc::kIo, "cannot open {}: {}", path, std::strerror(why));
  }
  if (::fstat(fd.get(), &info) != 0) {
    return Fail(Errc::kIo, "cannot examine {}: {}", path, std::strerror(errno));
  }
  if (S_ISREG(info.st_mode)) return fd;
  return Fail(Errc::kIo, "cannot read {}: it is not a file but {}", path, KindOfFile(info.st_mode));
}

Result<std::string> ReadRegularFile(const std::string& path, uint64_t most) {
  TRY(const UniqueFd fd, OpenRegularFile(path));
  std::string text;
  if (!ReadUpTo(fd.get(), most + 1, text)) {
    return Fail(Errc::kIo, "cannot read {}: {}", path, std::strerror(errno));
  }
  if (text.size() <= most) return text;
  return Fail(Errc::kInvalidFile, "{} has more than {}", path, FormatBytes(most));
}

bool IsAbsent(const std::string& path) {
  struct stat info = {};
  return ::stat(path.c_str(), &info) != 0 &&
         (errno == ENOENT || errno == ENOTDIR || errno == ENAMETOOLONG);
}

std::optional<std::string> ReadSmallFile(const std::string& path, size_t most) {
  const Result<UniqueFd> fd = OpenRegularFile(path);
  std::string text;
  if (!fd || !ReadUpTo(fd->get(), most, text)) return std::nullopt;
  return text;
}

std::string ReadWord(const std::string& path) {
  const std::optional<std::string> text = ReadSmallFile(path, kLongestWord + 2);
  if (!text) return "";
  const std::string_view word = WithoutBlanks(std::string_view(*text).substr(0, text->find('\n')));
  const bool is_fit = word.size() <= kLongestWord &&
                      std::ranges::all_of(word, [](char c) { return c >= ' ' && c <= '~'; });
  return is_fit ? std::string(word) : "";
}

std::optional<uint64_t> FieldOf(std::string_view text, std::string_view field) {
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (!line.starts_with(field)) continue;
    line = WithoutBlanks(line.substr(field.size()));
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value);
    return error == std::errc{} ? std::optional(value) : std::nullopt;
  }
  return std::nullopt;
}

namespace {

Result<FileStamp> StampOf(int failed, const struct stat& info, const std::string& path) {
  if (failed != 0) return Fail(Errc::kIo, "cannot examine {}: {}", path, std::strerror(errno));
  constexpr int64_t kNanoseconds = 1'000'000'000;
  return FileStamp{.device = info.st_dev,
                   .inode = info.st_ino,
                   .size = static_cast<uint64_t>(info.st_size),
                   .modified_ns = info.st_mtim.tv_sec * kNanoseconds + info.st_mtim.tv_nsec};
}

}  // namespace

Result<FileStamp> FileStamp::Of(const std::string& path) {
  struct stat info{};
  const int failed = ::stat(path.c_str(), &info);
  return StampOf(failed, info, path);
}

Result<FileStamp> FileStamp::Of(int fd, const std::string& path) {
  struct stat info{};
  const int failed = ::fstat(fd, &info);
  return StampOf(failed, info, path);
}

namespace {

constexpr double kSecondsBetweenLooks = 1.0;

const char* WhatChanged(const FileStamp& before, const FileStamp& now) {
  if (before.device != now.device || before.inode != now.inode) return "is another file now";
  if (before.size != now.size) return "has another size now";
  return "has been written to";
}

}  // namespace

Status FileWatch::Look() {
  if (clock_ != nullptr) last_look_ = (*clock_)();
  for (const WatchedFile& file : files_) {
    const Result<FileStamp> now = FileStamp::Of(file.path);
    if (!now || *now == file.stamp) continue;
    return Fail(Errc::kInvalidFile,
                "{} {}, after it was opened; its old and new weights would mix, so the run ends: "
                "start again",
                file.path, WhatChanged(file.stamp, *now));
  }
  return {};
}

Status FileWatch::LookNowAndThen() {
  if (files_.empty() || (*clock_)() - last_look_ < kSecondsBetweenLooks) return {};
  return Look();
}

}  // namespace moestro
