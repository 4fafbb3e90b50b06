// SPDX-License-Identifier: MIT
#include "schema/number_range.h"

#include <algorithm>
#include <charconv>
#include <compare>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/text.h"

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

namespace {

constexpr size_t kMostBoundDigits = 40;

// Alternatives of which some may be impossible.
class Choice {
 public:
  void Add(std::optional<std::string> text) {
    if (text) alternatives_.push_back(std::move(*text));
  }
  std::optional<std::string> Text() const {
    if (alternatives_.empty()) return std::nullopt;
    if (alternatives_.size() == 1) return alternatives_.front();
    std::string text = "(";
    for (size_t i = 0; i < alternatives_.size(); ++i) {
      text += (i == 0 ? " " : " | ") + alternatives_[i];
    }
    return text + " )";
  }

 private:
  std::vector<std::string> alternatives_;
};

std::string DigitClass(char first, char last) {
  return first == last ? Format("\"{}\"", first) : Format("[{}-{}]", first, last);
}

std::optional<std::string> Joined(const std::string& first,
                                  const std::optional<std::string>& rest) {
  if (!rest) return std::nullopt;
  return rest->empty() ? first : first + " " + *rest;
}

// Writes numbers without sign that have `length` digits before the point. Digits are written from
// the left; "tight" to a bound means that all digits so far equal the bound's.
class DigitsWriter {
 public:
  DigitsWriter(size_t length, bool is_integer, const Bound& low, const std::optional<Bound>& high)
      : length_(length),
        is_integer_(is_integer),
        low_excluded_(low.is_exclusive),
        high_excluded_(high && high->is_exclusive) {
    fraction_ = std::max(low.value.fraction.size(), high ? high->value.fraction.size() : 0);
    low_ = Padded(low.value);
    if (high) high_ = Padded(high->value);
  }
  std::optional<std::string> Write(bool is_low_tight, bool is_high_tight) const {
    return Integer(0, {is_low_tight, is_high_tight});
  }

 private:
  struct Tight {
    bool low = false;
    bool high = false;
  };

  std::string Padded(const Decimal& number) const {
    std::string digits = number.integer + number.fraction;
    digits.append(fraction_ - number.fraction.size(), '0');
    return digits;
  }
  static bool IsZeroFrom(const std::string& digits, size_t at) {
    return at >= digits.size() || digits.find_first_not_of('0', at) == std::string::npos;
  }
  // Whether the number may end before the digit at `at`.
  bool MayStop(size_t at, Tight tight) const {
    if (tight.low && !(IsZeroFrom(low_, at) && !low_excluded_)) return false;
    return !(tight.high && high_excluded_ && IsZeroFrom(high_, at));
  }

  std::optional<std::string> Digit(size_t at, Tight tight) const {
    const char least = tight.low ? low_[at] : (at == 0 && length_ > 1 ? '1' : '0');
    const char most = tight.high ? high_[at] : '9';
    Choice choice;
    for (char c = least; c <= most;) {
      const Tight next = {tight.low && c == least, tight.high && c == most};
      // Digits that are tight to nothing go on alike.
      char last = c;
      if (!next.low && !next.high) last = tight.high ? static_cast<char>(most - 1) : most;
      const bool is_integer_digit = at < length_;
      choice.Add(Joined(DigitClass(c, last),
                        is_integer_digit ? Integer(at + 1, next) : AfterFraction(at + 1, next)));
      c = static_cast<char>(last + 1);
    }
    return choice.Text();
  }

  std::optional<std::string> Integer(size_t at, Tight tight) const {
    if (at < length_) {
      if (tight.low || tight.high || at == 0) return Digit(at, tight);
      return Joined(Format("[0-9]{{{}}}", length_ - at), Integer(length_, tight));
    }
    const bool may_stop = MayStop(at, tight);
    if (is_integer_) return may_stop ? std::optional<std::string>("") : std::nullopt;
    const auto fraction = Joined("\".\"", Fraction(at, tight));
    if (may_stop && fraction) return "( " + *fraction + " )?";
    return may_stop ? std::optional<std::string>("") : fraction;
  }

  // A digit of the fraction at least.
  std::optional<std::string> Fraction(size_t at, Tight tight) const {
    if (!tight.low && !tight.high) return Format("[0-9]{{1,{}}}", kFractionDigits);
    if (at < length_ + fraction_) return Digit(at, tight);
    // The bound has only zeros left.
    if (tight.high) {
      if (high_excluded_ || (tight.low && low_excluded_)) return std::nullopt;
      return Format("\"0\"{{1,{}}}", kFractionDigits);
    }
    if (!low_excluded_) return Format("[0-9]{{1,{}}}", kFractionDigits);
    return Format("\"0\"{{0,{0}}} [1-9] [0-9]{{0,{0}}}", kFractionDigits);
  }

  std::optional<std::string> AfterFraction(size_t at, Tight tight) const {
    if (!tight.low && !tight.high) return Format("[0-9]{{0,{}}}", kFractionDigits);
    const bool may_stop = MayStop(at, tight);
    const auto more = Fraction(at, tight);
    if (may_stop && more) return "( " + *more + " )?";
    return may_stop ? std::optional<std::string>("") : more;
  }

  size_t length_;
  bool is_integer_;
  bool low_excluded_;
  bool high_excluded_;
  size_t fraction_ = 0;  // digits after the point in low_ and high_
  std::string low_;
  std::string high_;
};

// REQUIRES: neither bound is negative.
std::optional<std::string> Magnitudes(bool is_integer, const Bound& low,
                                      const std::optional<Bound>& high) {
  const size_t shortest = low.value.integer.size();
  const size_t longest =
      high ? high->value.integer.size() : std::max<size_t>(kIntegerDigits, shortest + 1);
  if (shortest > longest) return std::nullopt;
  Choice choice;
  // Numbers as long as a bound must be compared with the bound; zero as a bound restricts nothing.
  const auto add = [&](size_t length) {
    const bool is_low_tight = length == shortest && !(low.value.is_zero() && !low.is_exclusive);
    const bool is_high_tight = high && length == longest;
    choice.Add(DigitsWriter(length, is_integer, low, high).Write(is_low_tight, is_high_tight));
  };
  add(shortest);
  const size_t last_free = high ? longest - 1 : longest;
  if (shortest < last_free) {
    choice.Add(Format("[1-9] [0-9]{{{},{}}}", shortest, last_free - 1) +
               (is_integer ? "" : Format(" ( \".\" [0-9]{{1,{}}} )?", kFractionDigits)));
  }
  if (high && longest > shortest) add(longest);
  return choice.Text();
}

bool IsTooLong(const std::optional<Bound>& bound) {
  return bound &&
         std::max(bound->value.integer.size(), bound->value.fraction.size()) > kMostBoundDigits;
}

std::optional<Bound> Mirrored(const std::optional<Bound>& bound) {
  if (!bound) return std::nullopt;
  return Bound{bound->value.Negated(), bound->is_exclusive};
}

}  // namespace

Result<std::string> NumberRangeGbnf(const NumberRange& range) {
  CHECK(range.low || range.high);
  for (const auto& bound : {range.low, range.high}) {
    if (!IsTooLong(bound)) continue;
    return Fail(Errc::kUnsupported, "a bound of more than {} digits", kMostBoundDigits);
  }
  const Bound zero;
  Choice choice;
  if (!range.low || range.low->value.is_negative) {
    const bool goes_below_zero = !range.high || range.high->value.is_negative;
    const Bound nearest =
        goes_below_zero && range.high ? *Mirrored(range.high) : Bound{Decimal(), true};
    choice.Add(Joined("\"-\"", Magnitudes(range.is_integer, nearest, Mirrored(range.low))));
  }
  if (!range.high || !range.high->value.is_negative) {
    const bool is_above_zero = range.low && !range.low->value.is_negative;
    choice.Add(Magnitudes(range.is_integer, is_above_zero ? *range.low : zero, range.high));
  }
  return choice.Text().value_or("");
}

}  // namespace moestro
