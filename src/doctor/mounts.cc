// SPDX-License-Identifier: MIT
#include "doctor/mounts.h"

#include <algorithm>
#include <charconv>
#include <cstddef>

namespace moestro {
namespace {

std::vector<std::string_view> Words(std::string_view line) {
  std::vector<std::string_view> words;
  while (!line.empty()) {
    const std::string_view word = line.substr(0, line.find(' '));
    if (!word.empty()) words.push_back(word);
    line.remove_prefix(std::min(word.size() + 1, line.size()));
  }
  return words;
}

bool IsOctal(char c) { return c >= '0' && c <= '7'; }

// The kernel writes blanks, tabs, newlines and backslashes as "\040".
std::string Unescaped(std::string_view word) {
  std::string text;
  for (size_t i = 0; i < word.size(); ++i) {
    if (word[i] == '\\' && i + 3 < word.size() && IsOctal(word[i + 1]) && IsOctal(word[i + 2]) &&
        IsOctal(word[i + 3])) {
      const int code = (word[i + 1] - '0') * 64 + (word[i + 2] - '0') * 8 + (word[i + 3] - '0');
      text += static_cast<char>(code);
      i += 3;
    } else {
      text += word[i];
    }
  }
  return text;
}

std::optional<uint32_t> Number(std::string_view text) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_whole = error == std::errc{} && end == text.data() + text.size();
  return is_whole ? std::optional(value) : std::nullopt;
}

// "36 35 98:0 /root /mnt rw,noatime master:1 - ext4 /dev/sda1 rw,errors=continue"
std::optional<Mount> ParseMount(std::string_view line) {
  const std::vector<std::string_view> words = Words(line);
  const auto dash = std::ranges::find(words, "-");
  const auto at = static_cast<size_t>(dash - words.begin());
  if (at < 6 || words.size() < at + 4) return std::nullopt;
  const size_t colon = words[2].find(':');
  if (colon == std::string_view::npos || !words[4].starts_with('/')) return std::nullopt;
  const auto major = Number(words[2].substr(0, colon));
  const auto minor = Number(words[2].substr(colon + 1));
  if (!major || !minor) return std::nullopt;
  return Mount{.point = Unescaped(words[4]),
               .file_system = std::string(words[at + 1]),
               .source = Unescaped(words[at + 2]),
               .options = std::string(words[5]) + "," + std::string(words[at + 3]),
               .major = *major,
               .minor = *minor};
}

bool IsBelow(std::string_view path, std::string_view point) {
  if (point == "/") return path.starts_with('/');
  return path.starts_with(point) && (path.size() == point.size() || path[point.size()] == '/');
}

}  // namespace

std::vector<Mount> ParseMounts(std::string_view text) {
  std::vector<Mount> mounts;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (auto mount = ParseMount(line)) mounts.push_back(*std::move(mount));
  }
  return mounts;
}

std::optional<Mount> FindMount(const std::vector<Mount>& mounts, std::string_view path) {
  std::optional<Mount> found;
  for (const Mount& mount : mounts) {
    if (!IsBelow(path, mount.point)) continue;
    if (!found || mount.point.size() >= found->point.size()) found = mount;
  }
  return found;
}

}  // namespace moestro
