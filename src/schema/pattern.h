// SPDX-License-Identifier: MIT
// Regular expressions of JSON schemas ("pattern", and formats that are expressions) as rules for
// the text between the quotes of a JSON string.
//
// Supported: characters, escapes, ., classes, groups, |, * + ? {n,m} (greedy or not: the same
// texts), ^ and $ at the ends of the whole or of its outermost alternatives. No flags; without ^
// and $ text may surround the match, as ECMA-262 searches.
//
// Thread rule: any one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "schema/rule_set.h"

namespace moestro {

// The parts of a regular expression.

struct PatternNode {
  enum class Kind : uint8_t {
    kSet,       // one character of `set`
    kSequence,  // all children, one after the other
    kChoice,    // one of the children
    kRepeat,    // the only child, so many times
  };
  Kind kind = Kind::kSequence;
  CharSet set = {};
  Times times = {};
  std::vector<PatternNode> children = {};
};

// kInvalidRequest, kUnsupported as Pattern::Parse(). No deeper than kMostPatternDepth.
Result<PatternNode> ParsePattern(std::string_view text);
inline constexpr int kMostPatternDepth = 32;

// Characters that a match has. Counts beyond RuleSet::kMostTimes are that or, for `most`, none.
Times PatternLength(const PatternNode& node);

struct PatternNode;

class Pattern {
 public:
  // kInvalidRequest for a text that is no expression, kUnsupported for an expression that is not
  // supported here.
  static Result<Pattern> Parse(std::string_view text);
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;
  ~Pattern();

  // Restricts the pattern to texts of `length` characters. kUnsupported if more than the count of
  // one repetition would have to change. False: no text is left.
  Result<bool> Limit(Times length);
  RuleId Write(RuleSet& rules) const;

 private:
  explicit Pattern(std::unique_ptr<PatternNode> root);
  std::unique_ptr<PatternNode> root_;
};

// The expression for a "format" of the JSON Schema standard; it allows only texts of that format,
// and for email, uri, hostname not all. nullopt: no expression here.
std::optional<std::string> PatternOfFormat(std::string_view format);
// Whether the standard has a format of this name; other formats are annotations.
bool IsStandardFormat(std::string_view format);

}  // namespace moestro
