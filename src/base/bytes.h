// SPDX-License-Identifier: MIT
// Sizes in bytes: literals, alignment, and the text forms users read and write.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace moestro {

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

}  // namespace moestro
