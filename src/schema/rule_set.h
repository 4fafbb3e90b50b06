// SPDX-License-Identifier: MIT
// Rules of one schema while they are being made. A rule may turn out to allow no text, which GBNF
// cannot express; so rules are lists of alternatives here, and alternatives that can never end are
// left out at the end.
//
// Thread rule: any one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace moestro {

// Sets of characters, and their form in GBNF inside a JSON string.

struct CharRange {
  uint32_t first = 0;
  uint32_t last = 0;  // included
};

// Sorted, without overlaps and without surrogates, which are no characters.
class CharSet {
 public:
  CharSet() = default;
  explicit CharSet(const std::vector<CharRange>& ranges);
  static CharSet All();
  CharSet Complement() const;
  bool Has(uint32_t c) const;
  bool is_empty() const { return ranges_.empty(); }
  const std::vector<CharRange>& ranges() const { return ranges_; }

  // GBNF for one character of the set in a JSON string: the character itself where JSON allows
  // that, else its escape; never both. REQUIRES: not empty.
  std::string InJsonString() const;

 private:
  std::vector<CharRange> ranges_;
};

using RuleId = uint32_t;

// Numbers of repetitions; no `most`: without end.
struct Times {
  uint64_t least = 0;
  std::optional<uint64_t> most = std::nullopt;
};

// A sequence in GBNF: text and references to rules.
class RuleBody {
 public:
  RuleBody& Gbnf(std::string_view text);  // unchanged
  RuleBody& Text(std::string_view text);  // quoted
  RuleBody& Rule(RuleId rule);
  RuleBody& Append(const RuleBody& other);

 private:
  friend class RuleSet;
  struct Part {
    std::string text;
    std::optional<RuleId> rule;
  };
  std::vector<Part> parts_;
};

// A text in GBNF's quotes.
std::string QuoteForGbnf(std::string_view text);

class RuleSet {
 public:
  // Repetitions of one thing that a grammar can count.
  static constexpr uint64_t kMostTimes = 100'000;

  RuleId Add();  // allows nothing as yet
  RuleId Add(RuleBody body);
  void AddAlternative(RuleId rule, RuleBody body);
  // Equal GBNF texts give the same rule.
  RuleId Shared(const std::string& gbnf);
  // kMostTimes stands for a larger `most`. REQUIRES: least <= kMostTimes, and <= most.
  RuleId Repeated(RuleId unit, Times times);

  // Name and body of each rule that is reached from `first`. The first one is `first`, called
  // `name`; the others are called name-1, name-2, .... Empty: `first` allows no text.
  std::vector<std::pair<std::string, std::string>> Named(RuleId first, std::string_view name) const;
  size_t size() const { return rules_.size(); }

 private:
  using Alternatives = std::vector<RuleBody>;
  std::vector<bool> Productive() const;

  std::vector<Alternatives> rules_;
  std::map<std::string, RuleId> shared_;
  std::map<std::pair<RuleId, std::pair<uint64_t, uint64_t>>, RuleId> repeated_;
};

}  // namespace moestro
