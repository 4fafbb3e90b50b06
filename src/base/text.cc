// SPDX-License-Identifier: MIT
#include "base/text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/terminal.h"

namespace moestro {

std::string FormatErased(std::string_view text, std::format_args args) {
  return std::vformat(text, args);
}

std::string_view WithoutBlanks(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

std::string UpperCase(std::string_view text) {
  std::string upper(text);
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return upper;
}

bool IsNamedWith(std::string_view text, std::string_view ending) {
  return text.size() > ending.size() &&
         LowerCase(text.substr(text.size() - ending.size())) == LowerCase(ending);
}

std::vector<std::string> PartsOfSplit(const std::string& path) {
  constexpr std::string_view kExample = "-00001-of-00003.gguf";
  constexpr uint32_t kMostParts = 4096;
  const size_t begin = path.size() - std::min(path.size(), kExample.size());
  const std::string_view tail = std::string_view(path).substr(begin);
  const bool fits =
      tail.size() == kExample.size() && tail.starts_with("-00001-of-") && tail.ends_with(".gguf");
  uint32_t count = 0;
  if (fits) std::from_chars(tail.data() + 10, tail.data() + 15, count);
  if (count < 2 || count > kMostParts) return {path};
  std::vector<std::string> parts;
  for (uint32_t i = 1; i <= count; ++i) {
    parts.push_back(Format("{}-{:05}-of-{:05}.gguf", path.substr(0, begin), i, count));
  }
  return parts;
}

std::string Joined(std::span<const std::string> parts, std::string_view between) {
  std::string text;
  for (const std::string& part : parts) {
    if (!text.empty()) text += between;
    text += part;
  }
  return text;
}

// The first byte fixes the length and the range of the second byte, later bytes are 80..BF.
Utf8Sequence ReadUtf8(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return {.length = 1, .is_valid = true};
  size_t length = 0;
  if (first >= 0xC2 && first <= 0xDF)
    length = 2;
  else if (first >= 0xE0 && first <= 0xEF)
    length = 3;
  else if (first >= 0xF0 && first <= 0xF4)
    length = 4;
  else
    return {};
  uint8_t low = 0x80;
  uint8_t high = 0xBF;
  if (first == 0xE0) low = 0xA0;   // overlong
  if (first == 0xED) high = 0x9F;  // surrogates
  if (first == 0xF0) low = 0x90;   // overlong
  if (first == 0xF4) high = 0x8F;  // past U+10FFFF
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {.length = i, .is_open = true};
    if (byte(i) < low || byte(i) > high) return {.length = i};
    low = 0x80;
    high = 0xBF;
  }
  return {.length = length, .is_valid = true};
}

size_t FindInvalidUtf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Sequence sequence = ReadUtf8(text.substr(at));
    if (!sequence.is_valid) return at;
    at += sequence.length;
  }
  return at;
}

namespace {

constexpr size_t kShortestBeginning = 3;

std::string_view WithoutDashes(std::string_view name) {
  return name.substr(std::min(name.find_first_not_of('-'), name.size()));
}

}  // namespace

std::optional<size_t> EditDistance(std::string_view a, std::string_view b, size_t most) {
  const size_t longer = std::max(a.size(), b.size());
  most = std::min(most, longer);
  if (longer - std::min(a.size(), b.size()) > most) return std::nullopt;
  // Row i holds the distances of a's first i bytes from the beginnings of b. Only distances within
  // `most` of the diagonal can matter; `far` stands for all others.
  const size_t far = longer + 1;
  std::array<std::vector<size_t>, 3> rows;
  for (auto& row : rows) row.assign(b.size() + 1, far);
  for (size_t j = 0; j <= std::min(most, b.size()); ++j) rows[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    std::vector<size_t>& now = rows[i % 3];
    const std::vector<size_t>& last = rows[(i + 2) % 3];
    const std::vector<size_t>& before = rows[(i + 1) % 3];
    const size_t first = i > most ? i - most : 0;
    const size_t end = std::min(b.size(), i + most);
    if (first > 0) now[first - 1] = far;
    for (size_t j = first; j <= end; ++j) {
      now[j] = last[j] + 1;
      if (j == 0) continue;
      const size_t exchanged = a[i - 1] == b[j - 1] ? 0 : 1;
      now[j] = std::min({now[j], now[j - 1] + 1, last[j - 1] + exchanged});
      const bool is_swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (is_swapped) now[j] = std::min(now[j], before[j - 2] + 1);
    }
    if (end < b.size()) now[end + 1] = far;
  }
  const size_t distance = rows[a.size() % 3][b.size()];
  return distance <= most ? std::optional(distance) : std::nullopt;
}

std::optional<std::string> NearestName(std::string_view typed, std::span<const std::string> names) {
  const std::string_view wanted = WithoutDashes(typed);
  std::optional<std::pair<size_t, std::string>> nearest;
  std::optional<std::string> begun;
  for (const std::string& name : names) {
    const std::string_view here = WithoutDashes(name);
    const auto distance = EditDistance(wanted, here, std::max<size_t>(here.size() / 3, 1));
    if (distance && *distance < here.size() && (!nearest || *distance < nearest->first)) {
      nearest = {*distance, name};
    }
    if (wanted.size() >= kShortestBeginning && here.starts_with(wanted) && !begun) begun = name;
  }
  if (nearest && nearest->first <= 1) return nearest->second;
  if (begun) return begun;
  return nearest ? std::optional(nearest->second) : std::nullopt;
}

std::vector<std::string> NearestWords(std::string_view word, std::span<const std::string> words,
                                      size_t most) {
  constexpr size_t kLongest = 200;
  const std::string wanted = UpperCase(word);
  std::vector<std::pair<size_t, std::string>> near;
  for (const std::string& other : words) {
    if (other.size() > kLongest || word.size() > kLongest) continue;
    const size_t most_letters = std::max<size_t>(2, word.size() / 2);
    const auto distance = EditDistance(wanted, UpperCase(other), most_letters);
    if (distance) near.emplace_back(*distance, other);
  }
  std::ranges::stable_sort(near, {}, &std::pair<size_t, std::string>::first);
  const auto repeated = std::ranges::unique(near, {}, &std::pair<size_t, std::string>::second);
  near.erase(repeated.begin(), repeated.end());
  std::vector<std::string> nearest;
  for (const auto& [distance, other] : near) {
    if (nearest.size() < most) nearest.push_back(other);
  }
  return nearest;
}

std::string NearestText(std::string_view word, std::span<const std::string> words) {
  constexpr size_t kMost = 3;
  std::vector<std::string> nearest = NearestWords(word, words, kMost);
  for (std::string& name : nearest) name = Printable(name);
  return nearest.empty() ? "" : "; nearest: " + Joined(nearest);
}

}  // namespace moestro
