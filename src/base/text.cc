// SPDX-License-Identifier: MIT
#include "base/text.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>

#include "base/format.h"

namespace moestro {

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

}  // namespace moestro
