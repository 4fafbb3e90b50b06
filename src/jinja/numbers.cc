// SPDX-License-Identifier: MIT
// Numbers of texts, as Python's int() and float() read them, and whole numbers of any length.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <vector>

#include "jinja/characters.h"
#include "jinja/failure.h"
#include "jinja/value.h"

namespace moestro::jinja {
namespace {

// Python prints no longer ones.
constexpr size_t kMostDigits = 4300;

int DigitOf(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'z') return c - 'a' + 10;
  if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
  return std::numeric_limits<int>::max();
}

// Digits of a base as decimal ones, without zeros before them.
std::string DecimalOf(std::string_view digits, int base) {
  constexpr uint64_t kPart = 1'000'000'000;
  std::vector<uint64_t> parts;  // of nine decimal digits, the lowest first
  for (const char c : digits) {
    auto carry = static_cast<uint64_t>(DigitOf(c));
    for (uint64_t& part : parts) {
      carry += part * static_cast<uint64_t>(base);
      part = carry % kPart;
      carry /= kPart;
    }
    if (carry > 0) parts.push_back(carry);
  }
  if (parts.empty()) return "0";
  std::string decimal = std::to_string(parts.back());
  for (size_t i = parts.size() - 1; i-- > 0;) decimal += Format("{:09}", parts[i]);
  return decimal;
}

// The text without "_", each of which stands between two digits, or behind a prefix.
std::optional<std::string> WithoutUnderscores(std::string_view text, bool has_prefix) {
  std::string plain;
  const auto is_digit = [](char c) { return DigitOf(c) < 36; };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      plain += text[i];
      continue;
    }
    const bool is_behind = i == 0 ? has_prefix : is_digit(text[i - 1]);
    if (!is_behind || i + 1 == text.size() || !is_digit(text[i + 1])) return std::nullopt;
  }
  return plain;
}

// The base that a prefix such as "0x" names; 0: none.
int BaseOfPrefix(std::string_view text) {
  if (text.size() < 2 || text.front() != '0') return 0;
  const char c = text[1];
  if (c == 'x' || c == 'X') return 16;
  if (c == 'o' || c == 'O') return 8;
  return c == 'b' || c == 'B' ? 2 : 0;
}

// A sign, which the text loses.
bool TakeSign(std::string_view& text) {
  const bool is_minus = text.starts_with('-');
  if (is_minus || text.starts_with('+')) text.remove_prefix(1);
  return is_minus;
}

}  // namespace

std::optional<Value> WholeOfText(std::string_view text, int base) {
  std::string_view left = Strip(text, true, true);
  const bool is_minus = TakeSign(left);
  const int named = BaseOfPrefix(left);
  const bool has_prefix = named != 0 && (base == 0 || base == named);
  if (has_prefix) left.remove_prefix(2);
  const bool has_zero = base == 0 && !has_prefix && left.starts_with('0');
  if (has_zero && left.find_first_not_of("0_") != std::string_view::npos) return std::nullopt;
  if (base == 0) base = has_prefix ? named : 10;
  const auto plain = WithoutUnderscores(left, has_prefix);
  if (!plain || plain->empty() ||
      !std::ranges::all_of(*plain, [base](char c) { return DigitOf(c) < base; })) {
    return std::nullopt;
  }
  const std::string_view digits =
      std::string_view(*plain).substr(std::min(plain->find_first_not_of('0'), plain->size() - 1));
  const std::string signed_digits = (is_minus ? "-" : "") + std::string(digits);
  int64_t value = 0;
  const auto read = std::from_chars(signed_digits.data(),
                                    signed_digits.data() + signed_digits.size(), value, base);
  if (read.ec == std::errc()) return Value(value);
  const auto bits = static_cast<double>(digits.size()) * std::log10(base);
  if (bits > static_cast<double>(kMostDigits)) {
    Raise("a whole number of more than {} digits", kMostDigits);
  }
  return Value::BigInt((is_minus ? "-" : "") + DecimalOf(digits, base));
}

std::optional<double> RealOfText(std::string_view text) {
  std::string_view left = Strip(text, true, true);
  const double sign = TakeSign(left) ? -1.0 : 1.0;
  const std::string lower = Lower(left);
  if (lower == "inf" || lower == "infinity") return sign * std::numeric_limits<double>::infinity();
  if (lower == "nan") return std::numeric_limits<double>::quiet_NaN();
  const auto digits = WithoutUnderscores(lower, /*has_prefix=*/false);
  if (!digits || digits->find_first_not_of("0123456789.e+-") != std::string::npos ||
      digits->starts_with('-')) {
    return std::nullopt;
  }
  const auto real = RealOfDigits(*digits);
  return real ? std::optional(sign * *real) : std::nullopt;
}

Value WholePartOf(double value) {
  constexpr double kEdge = 9223372036854775808.0;  // 2^63
  if (std::isnan(value)) Raise("cannot convert float NaN to integer");
  if (std::isinf(value)) Raise("cannot convert float infinity to integer");
  if (value >= -kEdge && value < kEdge) return Value(static_cast<int64_t>(value));
  std::array<char, 400> digits{};  // of 309 at most
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), std::trunc(value),
                                 std::chars_format::fixed);
  return Value::BigInt(std::string(digits.data(), end.ptr));
}

double RealOf(const Value& number) {
  switch (number.kind()) {
    case Value::Kind::kBool:
      return number.boolean() ? 1.0 : 0.0;
    case Value::Kind::kInt:
      return static_cast<double>(number.integer());
    case Value::Kind::kBigInt:
      return RealOfDigits(number.digits()).value_or(0.0);
    default:
      return number.real();
  }
}

int64_t WholeOf(const Value& value, std::string_view what) {
  if (value.kind() == Value::Kind::kInt) return value.integer();
  if (value.kind() == Value::Kind::kBool) return value.boolean() ? 1 : 0;
  if (value.is_undefined()) Raise("{}", value.why_undefined());
  if (value.kind() == Value::Kind::kBigInt) Raise("{} has more than 64 bits", what);
  Raise("{} is a '{}', not a whole number of 64 bits", what, TypeName(value));
}

std::string BlanksOf(int64_t n) {
  if (n > static_cast<int64_t>(kMostTextBytes)) {
    Raise("{} blanks: a text of more than {} bytes", n, kMostTextBytes);
  }
  return std::string(static_cast<size_t>(std::max<int64_t>(n, 0)), ' ');
}

}  // namespace moestro::jinja
