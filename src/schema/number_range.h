// SPDX-License-Identifier: MIT
// JSON numbers between two bounds as GBNF.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "schema/decimal.h"

namespace moestro {

struct NumberRange {
  bool is_integer = false;  // no fraction is written, not even ".0"
  std::optional<Bound> low = std::nullopt;
  std::optional<Bound> high = std::nullopt;
};

// Digits that a grammar allows before the point, unless a bound needs more, and after the point.
inline constexpr uint64_t kIntegerDigits = 19;
inline constexpr uint64_t kFractionDigits = 24;

// One expression for all numbers of the range in plain notation with no more digits than
// kIntegerDigits and kFractionDigits allow; empty if no number is in the range. REQUIRES: a bound.
// kUnsupported for bounds of more than 40 digits on one side of the point.
Result<std::string> NumberRangeGbnf(const NumberRange& range);

}  // namespace moestro
