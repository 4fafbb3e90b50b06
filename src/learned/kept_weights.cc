// SPDX-License-Identifier: MIT
#include "learned/kept_weights.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "base/cache_folder.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/log.h"

namespace moestro {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kUnsettledNs = 2 * kSecondNs;
constexpr size_t kNumberDigits = 16;

// All of the key and, in the end, what it is for.
std::string KeyText(const WeightsKey& key) {
  std::string text = Format("moestro weights 1\n{} {:016x}\n", key.what, key.header);
  for (const FileVersion& file : key.files) {
    text += Format("{} {} {} {} {}\n", file.stamp.device, file.stamp.inode, file.stamp.size,
                   file.stamp.modified_ns, file.changed_ns);
  }
  return text;
}

std::string WithCheck(std::string text) {
  Fnv1a check;
  check.Add(text);
  return text + Format("{:016x}\n", check.value());
}

// Bytes of a file that belongs to this user and that no other user may write, if they are so many.
std::string ReadOwn(const std::string& path, size_t bytes) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
  if (fd < 0) return {};
  struct stat info{};
  const bool is_ours = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
                       info.st_uid == ::geteuid() && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0 &&
                       static_cast<uint64_t>(info.st_size) == bytes;
  std::string text(is_ours ? bytes : 0, '\0');
  const ssize_t got = is_ours ? ::pread(fd, text.data(), text.size(), 0) : 0;
  ::close(fd);
  return got == static_cast<ssize_t>(bytes) ? text : std::string();
}

// Under a name of its own first, so that a reader sees all of it or the file before. False: no.
bool WriteOwn(const std::string& path, std::string_view text) {
  struct rlimit most{};  // a file that is longer would end the process
  if (::getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur < text.size()) {
    errno = EFBIG;
    return false;
  }
  const std::string aside = Format("{}.{}.partial", path, ::getpid());
  ::unlink(aside.c_str());  // of a process that was killed
  const int fd = ::open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (fd < 0) return false;
  const bool is_written =
      ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const bool is_closed = ::close(fd) == 0;
  if (is_written && is_closed && ::rename(aside.c_str(), path.c_str()) == 0) return true;
  const int error = errno;
  ::unlink(aside.c_str());
  errno = error;
  return false;
}

bool IsSettled(const WeightsKey& key) {
  const int64_t now = std::chrono::duration_cast<std::chrono::nanoseconds>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count();
  return std::ranges::all_of(key.files, [now](const FileVersion& file) {
    return file.stamp.modified_ns < now - kUnsettledNs;
  });
}

}  // namespace

Result<FileVersion> FileVersion::Of(const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) {
    return Fail(Errc::kIo, "cannot examine {}: {}", path, std::strerror(errno));
  }
  return FileVersion{
      .stamp = {.device = info.st_dev,
                .inode = info.st_ino,
                .size = static_cast<uint64_t>(info.st_size),
                .modified_ns = info.st_mtim.tv_sec * kSecondNs + info.st_mtim.tv_nsec},
      .changed_ns = info.st_ctim.tv_sec * kSecondNs + info.st_ctim.tv_nsec};
}

std::string KeptWeightsFile(const std::string& folder, const WeightsKey& key) {
  Fnv1a hash;
  hash.Add(key.what);
  if (!key.files.empty()) {
    hash.AddNumber(key.files.front().stamp.device);
    hash.AddNumber(key.files.front().stamp.inode);
  }
  return Format("{}/weights-{:016x}", folder, hash.value());
}

std::optional<uint64_t> KeptWeights(const std::string& folder, const WeightsKey& key) {
  if (folder.empty()) return std::nullopt;
  const std::string begin = KeyText(key);
  const size_t bytes = begin.size() + 2 * (kNumberDigits + 1);
  const std::string text = ReadOwn(KeptWeightsFile(folder, key), bytes);
  if (!text.starts_with(begin)) return std::nullopt;
  const std::string_view number = std::string_view(text).substr(begin.size(), kNumberDigits);
  if (text != WithCheck(Format("{}{}\n", begin, number))) return std::nullopt;
  uint64_t id = 0;
  const auto [end, error] = std::from_chars(number.begin(), number.end(), id, 16);
  if (error != std::errc() || end != number.end() || id == 0) return std::nullopt;
  return id;
}

void KeepWeights(const std::string& folder, const WeightsKey& key, uint64_t id) {
  if (folder.empty() || !IsSettled(key)) return;
  MakePrivateFolder(folder);  // if that fails, so does writing
  const std::string path = KeptWeightsFile(folder, key);
  if (WriteOwn(path, WithCheck(Format("{}{:016x}\n", KeyText(key), id)))) return;
  LogInfo("the weights' number is not kept: cannot write {}: {}", path, std::strerror(errno));
}

}  // namespace moestro
