// SPDX-License-Identifier: MIT
#include "learned/kept_weights.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <string_view>
#include <system_error>

#include "base/cache_folder.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/own_file.h"

namespace moestro {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kUnsettledNs = 2 * kSecondNs;
constexpr size_t kNumberDigits = 16;

// Text of all of the key, with its purpose at the end.
std::string KeyText(const WeightsKey& key) {
  std::string text = Format("moestro weights 1\n{} {:016x}\n", key.what, key.header);
  for (const FileVersion& file : key.files) {
    text += Format("{} {} {} {} {}\n", file.stamp.device, file.stamp.inode, file.stamp.size,
                   file.stamp.modified_ns, file.changed_ns);
  }
  return text;
}

std::string WithCheck(const std::string& text) {
  Fnv1a check;
  check.Add(text);
  return text + Format("{:016x}\n", check.value());
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
  const std::string text = ReadOwnFile(KeptWeightsFile(folder, key), bytes);
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
  [[maybe_unused]] const std::error_code made = MakePrivateFolder(folder);  // writing will say so
  const std::string path = KeptWeightsFile(folder, key);
  if (WriteOwnFile(path, WithCheck(Format("{}{:016x}\n", KeyText(key), id)))) return;
  LogInfo("the weights' number is not kept: cannot write {}: {}", path, std::strerror(errno));
}

}  // namespace moestro
