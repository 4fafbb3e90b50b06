// SPDX-License-Identifier: MIT
#include "schema/decimal.h"

#include <algorithm>
#include <charconv>
#include <compare>

namespace moestro {
namespace {

constexpr int kLargestExponent = 400;

std::string_view TakeDigits(std::string_view& text) {
  const size_t end = std::min(text.find_first_not_of("0123456789"), text.size());
  const std::string_view digits = text.substr(0, end);
  text.remove_prefix(end);
  return digits;
}

std::strong_ordering CompareMagnitudes(const Decimal& a, const Decimal& b) {
  if (const auto order = a.integer.size() <=> b.integer.size(); std::is_neq(order)) return order;
  if (const auto order = a.integer <=> b.integer; std::is_neq(order)) return order;
  return a.fraction <=> b.fraction;  // no zeros at the end, so a prefix is less
}

}  // namespace

std::optional<Decimal> Decimal::Parse(std::string_view text) {
  Decimal number;
  number.is_negative = text.starts_with('-');
  if (number.is_negative) text.remove_prefix(1);
  std::string digits(TakeDigits(text));
  if (digits.empty()) return std::nullopt;
  size_t point = digits.size();
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    digits += TakeDigits(text);
  }
  if (text.starts_with('e') || text.starts_with('E')) {
    text.remove_prefix(1);
    if (text.starts_with('+')) text.remove_prefix(1);
    int exponent = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), exponent);
    if (error != std::errc() || exponent < -kLargestExponent || exponent > kLargestExponent) {
      return std::nullopt;
    }
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    if (exponent < 0) {
      const auto shift = static_cast<size_t>(-exponent);
      if (shift > point) {
        digits.insert(0, shift - point, '0');
        point = shift;
      }
      point -= shift;
    } else {
      point += static_cast<size_t>(exponent);
      if (point > digits.size()) digits.append(point - digits.size(), '0');
    }
  }
  if (!text.empty()) return std::nullopt;
  number.fraction = digits.substr(point);
  number.fraction.erase(number.fraction.find_last_not_of('0') + 1);
  digits.resize(point);
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size()));
  if (!digits.empty()) number.integer = digits;
  if (number.is_zero()) number.is_negative = false;
  return number;
}

Decimal Decimal::Negated() const {
  Decimal negated = *this;
  negated.is_negative = !is_negative && !is_zero();
  return negated;
}

std::string Decimal::ToText() const {
  return (is_negative ? "-" : "") + integer + (fraction.empty() ? "" : "." + fraction);
}

std::strong_ordering operator<=>(const Decimal& a, const Decimal& b) {
  if (a.is_negative != b.is_negative) {
    return a.is_negative ? std::strong_ordering::less : std::strong_ordering::greater;
  }
  return a.is_negative ? CompareMagnitudes(b, a) : CompareMagnitudes(a, b);
}

}  // namespace moestro
