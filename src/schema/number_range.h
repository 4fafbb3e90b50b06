// SPDX-License-Identifier: MIT
// JSON numbers between two bounds as GBNF.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace moestro {

// Numbers as decimal digits, exact, as in JSON texts.

struct Decimal {
  bool is_negative = false;   // never for zero
  std::string integer = "0";  // without leading zeros
  std::string fraction = {};  // without zeros at the end

  // nullopt for a text that is no JSON number, or has an exponent beyond a double's.
  static std::optional<Decimal> Parse(std::string_view text);
  bool is_zero() const { return integer == "0" && fraction.empty(); }
  Decimal Negated() const;
  std::string ToText() const;
  friend std::strong_ordering operator<=>(const Decimal& a, const Decimal& b);
  friend bool operator==(const Decimal&, const Decimal&) = default;
};

struct Bound {
  Decimal value;
  bool is_exclusive = false;
};

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
