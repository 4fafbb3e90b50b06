// SPDX-License-Identifier: MIT
#include "schema/text_set.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/format.h"

namespace moestro {
namespace {

constexpr uint32_t kLast = 0x10FFFF;
constexpr CharRange kSurrogates = {0xD800, 0xDFFF};

struct ShortEscape {
  uint32_t c;
  char letter;
};
constexpr std::array<ShortEscape, 7> kShortEscapes = {
    {{'"', '"'}, {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'}, {'\n', 'n'}, {'\r', 'r'}, {'\t', 't'}}};

std::string InClass(uint32_t c) {
  const bool is_plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  if (is_plain) return std::string(1, static_cast<char>(c));
  if (c <= 0xFF) return Format("\\x{:02X}", c);
  if (c <= 0xFFFF) return Format("\\u{:04X}", c);
  return Format("\\U{:08X}", c);
}

std::string Class(const std::vector<CharRange>& ranges) {
  std::string text = "[";
  for (const auto& [first, last] : ranges) {
    text += InClass(first);
    if (last > first) text += "-" + InClass(last);
  }
  return text + "]";
}

// The ranges without characters outside of `keep`.
std::vector<CharRange> Cut(const std::vector<CharRange>& ranges, CharRange keep) {
  std::vector<CharRange> cut;
  for (const auto& [first, last] : ranges) {
    const CharRange both = {std::max(first, keep.first), std::min(last, keep.last)};
    if (both.first <= both.last) cut.push_back(both);
  }
  return cut;
}

void Append(std::vector<CharRange>& to, const std::vector<CharRange>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

// Control characters that have no short escape, as \u00XX.
void AddLongEscapes(const CharSet& set, std::vector<std::string>& alternatives) {
  constexpr std::string_view kHex = "0123456789abcdef";
  for (const uint32_t high : {0U, 1U}) {
    std::string digits;
    for (uint32_t low = 0; low < kHex.size(); ++low) {
      const uint32_t c = high * 16 + low;
      const bool is_short = std::ranges::contains(kShortEscapes, c, &ShortEscape::c);
      if (!is_short && set.Has(c)) digits += kHex[low];
    }
    if (!digits.empty()) alternatives.push_back(Format("\"\\\\u00{}\" [{}]", high, digits));
  }
}

}  // namespace

CharSet::CharSet(const std::vector<CharRange>& ranges) {
  std::vector<CharRange> real = Cut(ranges, {0, kSurrogates.first - 1});
  Append(real, Cut(ranges, {kSurrogates.last + 1, kLast}));
  std::ranges::sort(real, {}, &CharRange::first);
  for (const CharRange& range : real) {
    if (!ranges_.empty() && range.first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, range.last);
    } else {
      ranges_.push_back(range);
    }
  }
}

CharSet CharSet::All() { return CharSet({{0, kLast}}); }

CharSet CharSet::Complement() const {
  std::vector<CharRange> ranges;
  uint32_t next = 0;
  for (const auto& [first, last] : ranges_) {
    if (first > next) ranges.push_back({next, first - 1});
    next = last + 1;
  }
  if (next <= kLast) ranges.push_back({next, kLast});
  return CharSet(ranges);
}

bool CharSet::Has(uint32_t c) const {
  return std::ranges::any_of(ranges_,
                             [c](const CharRange& r) { return r.first <= c && c <= r.last; });
}

std::string CharSet::InJsonString() const {
  std::vector<std::string> alternatives;
  std::vector<CharRange> raw = Cut(ranges_, {' ', '"' - 1});
  Append(raw, Cut(ranges_, {'"' + 1, '\\' - 1}));
  Append(raw, Cut(ranges_, {'\\' + 1, kLast}));
  if (!raw.empty()) alternatives.push_back(Class(raw));
  std::string letters;
  for (const auto& [c, letter] : kShortEscapes) {
    if (Has(c)) letters += InClass(static_cast<unsigned char>(letter));
  }
  if (!letters.empty()) alternatives.push_back(Format("\"\\\\\" [{}]", letters));
  AddLongEscapes(*this, alternatives);
  std::string text;
  for (const std::string& alternative : alternatives) {
    text += (text.empty() ? "" : " | ") + alternative;
  }
  return text;
}

}  // namespace moestro
