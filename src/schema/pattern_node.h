// SPDX-License-Identifier: MIT
// The parts of a regular expression.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "schema/rule_set.h"
#include "schema/text_set.h"

namespace moestro {

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

}  // namespace moestro
