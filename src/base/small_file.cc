// SPDX-License-Identifier: MIT
#include "base/small_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "base/text.h"
#include "base/unique_fd.h"

namespace moestro {
namespace {

constexpr size_t kLongestWord = 128;
}  // namespace

std::optional<std::string> ReadSmallFile(const std::string& path, size_t most) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat info = {};
  if (fd.get() < 0 || ::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return std::nullopt;
  }
  std::string text;
  while (text.size() < most) {
    char part[4096];
    const ssize_t n = ::read(fd.get(), part, std::min(sizeof(part), most - text.size()));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return std::nullopt;
    if (n == 0) break;
    text.append(part, static_cast<size_t>(n));
  }
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

}  // namespace moestro
