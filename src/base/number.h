// SPDX-License-Identifier: MIT
// Numbers as users write them and as this program prints them, on the command line, in variables,
// in files of settings and in sweeps. Pure.
#pragma once

#include <charconv>
#include <cmath>
#include <concepts>
#include <optional>
#include <string_view>
#include <system_error>

namespace moestro {

template <class T>
concept Number = (std::integral<T> && !std::same_as<T, bool>) || std::floating_point<T>;

// The number that makes up the whole text: digits with an optional minus before them; a fraction
// may have a point and an exponent: "-3", "0.8", "1e-05". nullopt: anything else, such as "0,8",
// "1'000", "1_000", " 1", "+1", "nan" and "inf", and a number that T cannot hold.
template <Number T>
std::optional<T> ParseNumber(std::string_view text) {
  T number{};
  const char* const end = text.data() + text.size();
  // NOLINTNEXTLINE(bugprone-suspicious-stringview-data-usage): the end is given
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{} || stop != end) return std::nullopt;
  if constexpr (std::floating_point<T>) {
    if (!std::isfinite(number)) return std::nullopt;
  }
  return number;
}

}  // namespace moestro
