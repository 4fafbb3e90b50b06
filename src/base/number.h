// SPDX-License-Identifier: MIT
// Numbers and sizes in bytes, as users write them and as this program prints them.
#pragma once

#include <charconv>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "base/result.h"

namespace moestro {

// Numbers as users write them and as this program prints them, on the command line, in variables,
// in files of settings and in sweeps. Pure.

// Sizes in bytes: literals, alignment, and the text forms users read and write.

inline constexpr uint64_t kKiB = 1024;
inline constexpr uint64_t kMiB = 1024 * kKiB;
inline constexpr uint64_t kGiB = 1024 * kMiB;

// The next multiple of `alignment` at or above `value`. REQUIRES: alignment is a power of two.
constexpr uint64_t AlignUp(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}
constexpr uint64_t AlignDown(uint64_t value, uint64_t alignment) {
  return value & ~(alignment - 1);
}

// "4G", "512M", "1.5 GiB", "800000": powers of 1024, a plain number is bytes, case does not matter.
// All that FormatBytes() writes is read.
// Fails with kUsage on anything else, negative numbers and overflow.
Result<uint64_t> ParseBytes(std::string_view text);

// "15.8 GiB", "884.7 KiB", "12 B".
std::string FormatBytes(uint64_t bytes);

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
