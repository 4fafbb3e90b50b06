// SPDX-License-Identifier: MIT
// Numbers as decimal digits, exact, as in JSON texts.
#pragma once

#include <compare>
#include <optional>
#include <string>
#include <string_view>

namespace moestro {

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

}  // namespace moestro
