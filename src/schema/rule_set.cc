// SPDX-License-Identifier: MIT
#include "schema/rule_set.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

#include "base/result.h"
#include "base/text.h"

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
  constexpr std::string_view kHexDigits = "0123456789abcdef";
  for (const uint32_t high : {0U, 1U}) {
    std::string digits;
    for (uint32_t low = 0; low < kHexDigits.size(); ++low) {
      const uint32_t c = high * 16 + low;
      const bool is_short = std::ranges::contains(kShortEscapes, c, &ShortEscape::c);
      if (!is_short && set.Has(c)) digits += kHexDigits[low];
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

namespace {

// libllama copies the repeated symbol, and refuses more than 2000 in one place. Blocks keep the
// number of copies at about twice the root of the count.
constexpr uint64_t kLargestPlainCount = 64;

std::string Braces(uint64_t least, std::optional<uint64_t> most) {
  if (!most) return least == 0 ? "*" : Format("{{{},}}", least);
  return least == *most ? Format("{{{}}}", least) : Format("{{{},{}}}", least, *most);
}

}  // namespace

std::string QuoteForGbnf(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (byte < 0x20 || byte == 0x7F) {
      quoted += Format("\\x{:02X}", static_cast<unsigned>(byte));
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

RuleBody& RuleBody::Gbnf(std::string_view text) {
  parts_.push_back({std::string(text), std::nullopt});
  return *this;
}

RuleBody& RuleBody::Text(std::string_view text) { return Gbnf(QuoteForGbnf(text)); }

RuleBody& RuleBody::Rule(RuleId rule) {
  parts_.push_back({"", rule});
  return *this;
}

RuleBody& RuleBody::Append(const RuleBody& other) {
  parts_.insert(parts_.end(), other.parts_.begin(), other.parts_.end());
  return *this;
}

RuleId RuleSet::Add() {
  rules_.emplace_back();
  return static_cast<RuleId>(rules_.size() - 1);
}

RuleId RuleSet::Add(RuleBody body) {
  const RuleId rule = Add();
  AddAlternative(rule, std::move(body));
  return rule;
}

void RuleSet::AddAlternative(RuleId rule, RuleBody body) {
  rules_[rule].push_back(std::move(body));
}

RuleId RuleSet::Shared(const std::string& gbnf) {
  if (const auto found = shared_.find(gbnf); found != shared_.end()) return found->second;
  const RuleId rule = Add(RuleBody().Gbnf(gbnf));
  shared_.emplace(gbnf, rule);
  return rule;
}

RuleId RuleSet::Repeated(RuleId unit, Times times) {
  CHECK(times.least <= kMostTimes && times.least <= times.most.value_or(times.least));
  if (times.most) times.most = std::min(*times.most, kMostTimes);
  const uint64_t key_most = times.most.value_or(std::numeric_limits<uint64_t>::max());
  const auto key = std::pair(unit, std::pair(times.least, key_most));
  if (const auto found = repeated_.find(key); found != repeated_.end()) return found->second;
  const RuleId rule = Add();
  repeated_.emplace(key, rule);
  const auto [least, most] = times;
  // Zero times are possible even if the unit is not.
  if (most == 0U) {
    AddAlternative(rule, RuleBody().Gbnf("\"\""));
  } else if (most.value_or(least) <= kLargestPlainCount) {
    if (least == 0) AddAlternative(rule, RuleBody().Gbnf("\"\""));
    AddAlternative(rule, RuleBody().Rule(unit).Gbnf(Braces(std::max<uint64_t>(least, 1), most)));
  } else if (least > 0) {
    // Exactly `least`, then the rest.
    const auto block_size = static_cast<uint64_t>(std::sqrt(static_cast<double>(least)));
    const RuleId block = Add(RuleBody().Rule(unit).Gbnf(Braces(block_size, block_size)));
    RuleBody body;
    body.Rule(block).Gbnf(Braces(least / block_size, least / block_size));
    if (least % block_size > 0) {
      body.Rule(unit).Gbnf(Braces(least % block_size, least % block_size));
    }
    if (most != least) {
      body.Rule(Repeated(unit, {0, most ? std::optional(*most - least) : std::nullopt}));
    }
    AddAlternative(rule, std::move(body));
  } else {
    // Fewer blocks than fit and any tail, or all blocks and the rest: each count in one way.
    const auto block_size = static_cast<uint64_t>(std::sqrt(static_cast<double>(*most)));
    const uint64_t blocks = *most / block_size;
    const RuleId block = Add(RuleBody().Rule(unit).Gbnf(Braces(block_size, block_size)));
    AddAlternative(rule, RuleBody().Rule(Repeated(unit, {0, block_size - 1})));
    AddAlternative(rule, RuleBody()
                             .Rule(block)
                             .Gbnf(Braces(1, blocks - 1))
                             .Rule(Repeated(unit, {0, block_size - 1})));
    AddAlternative(rule, RuleBody()
                             .Rule(block)
                             .Gbnf(Braces(blocks, blocks))
                             .Rule(Repeated(unit, {0, *most % block_size})));
  }
  return rule;
}

// A rule is productive if one of its alternatives names only productive rules. Each round visits
// the users of rules found in the round before.
std::vector<bool> RuleSet::Productive() const {
  struct Use {
    RuleId rule;
    size_t alternative;
  };
  std::vector<std::vector<Use>> uses(rules_.size());
  std::vector<std::vector<size_t>> missing(rules_.size());
  std::vector<bool> productive(rules_.size(), false);
  std::vector<RuleId> found;
  const auto finish = [&](RuleId rule) {
    if (!productive[rule]) found.push_back(rule);
    productive[rule] = true;
  };
  for (RuleId rule = 0; rule < rules_.size(); ++rule) {
    for (size_t i = 0; i < rules_[rule].size(); ++i) {
      size_t named = 0;
      for (const RuleBody::Part& part : rules_[rule][i].parts_) {
        if (!part.rule) continue;
        ++named;
        uses[*part.rule].push_back({rule, i});
      }
      missing[rule].push_back(named);
      if (named == 0) finish(rule);
    }
  }
  while (!found.empty()) {
    const RuleId rule = found.back();
    found.pop_back();
    for (const Use& use : uses[rule]) {
      if (--missing[use.rule][use.alternative] == 0) finish(use.rule);
    }
  }
  return productive;
}

std::vector<std::pair<std::string, std::string>> RuleSet::Named(RuleId first,
                                                                std::string_view name) const {
  const std::vector<bool> productive = Productive();
  std::vector<std::pair<std::string, std::string>> named;
  if (!productive[first]) return named;
  std::vector<RuleId> order = {first};
  std::map<RuleId, std::string> names = {{first, std::string(name)}};
  const auto name_of = [&](RuleId rule) {
    const auto [place, is_new] = names.try_emplace(rule, Format("{}-{}", name, order.size()));
    if (is_new) order.push_back(rule);
    return place->second;
  };
  const auto is_possible = [&](const RuleBody& body) {
    return std::ranges::all_of(body.parts_, [&](const RuleBody::Part& part) {
      return !part.rule || productive[*part.rule];
    });
  };
  for (size_t i = 0; i < order.size(); ++i) {
    std::string text;
    for (const RuleBody& body : rules_[order[i]]) {
      if (!is_possible(body)) continue;
      if (!text.empty()) text += " | ";
      std::string_view blank;
      for (const RuleBody::Part& part : body.parts_) {
        // A count follows its item without a blank.
        const bool counts = !part.rule && (part.text.starts_with('{') || part.text == "*");
        if (!counts) text += blank;
        text += part.rule ? name_of(*part.rule) : part.text;
        blank = " ";
      }
    }
    named.emplace_back(names.at(order[i]), std::move(text));
  }
  return named;
}

}  // namespace moestro
