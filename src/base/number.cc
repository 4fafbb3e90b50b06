// SPDX-License-Identifier: MIT
#include "base/number.h"

#include <array>
#include <cmath>

#include "base/text.h"

namespace moestro {
namespace {

// The factor behind a unit suffix, 0 for an unknown one.
double UnitFactor(std::string_view unit) {
  const std::string lower = LowerCase(unit);
  if (lower.empty() || lower == "b") return 1.0;
  constexpr std::string_view kPrefixes = "kmgt";
  const size_t power = kPrefixes.find(lower[0]);
  if (power == std::string_view::npos) return 0.0;
  const std::string_view rest = std::string_view(lower).substr(1);
  if (!rest.empty() && rest != "b" && rest != "ib") return 0.0;
  return std::pow(1024.0, static_cast<double>(power + 1));
}

}  // namespace

Result<uint64_t> ParseBytes(std::string_view text) {
  // A unit begins behind the last digit, so that "4e9" keeps its exponent: no unit begins with "e".
  const size_t digits = text.find_last_of("0123456789.") + 1;
  std::string_view unit = text.substr(digits);
  if (unit.starts_with(' ') && unit.size() > 1) unit.remove_prefix(1);
  const std::optional<double> number = ParseNumber<double>(text.substr(0, digits));
  const double factor = number ? UnitFactor(unit) : 0.0;
  const double bytes = number.value_or(0.0) * factor;
  if (factor == 0.0 || bytes < 0.0 || bytes >= 0x1p63) {
    return Fail(Errc::kUsage, "'{}' is not a size; write for example 4G, 512M or 1.5GiB", text);
  }
  return static_cast<uint64_t>(bytes);
}

std::string FormatBytes(uint64_t bytes) {
  constexpr std::array<const char*, 4> kUnits = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < kKiB) return Format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024.0;
  size_t unit = 0;
  while (value >= 1024.0 && unit + 1 < kUnits.size()) {
    value /= 1024.0;
    ++unit;
  }
  return Format("{:.1f} {}", value, kUnits[unit]);
}

}  // namespace moestro
