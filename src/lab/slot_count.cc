// SPDX-License-Identifier: MIT
#include "lab/slot_count.h"

#include <cstddef>

#include "base/number.h"

namespace moestro {
namespace {

Result<SlotCount> ParseSlotCount(std::string_view text) {
  const bool is_percent = text.ends_with('%');
  const std::string_view digits = is_percent ? text.substr(0, text.size() - 1) : text;
  const double value = ParseNumber<double>(digits).value_or(0.0);
  if (!(value > 0.0) || (is_percent ? value > 100.0 : value > 1e9)) {
    return Fail(Errc::kUsage, "'{}' is no number of slots; write 512 or 12.5%", text);
  }
  if (is_percent) return SlotCount{.percent = value};
  if (value != std::floor(value)) return Fail(Errc::kUsage, "'{}' is not a whole number", text);
  return SlotCount{.slots = static_cast<uint64_t>(value)};
}

}  // namespace

Status ParseSlotCounts(std::string_view text, std::vector<SlotCount>& counts) {
  counts.clear();
  while (true) {
    const size_t comma = text.find(',');
    TRY(const SlotCount count, ParseSlotCount(text.substr(0, comma)));
    counts.push_back(count);
    if (comma == std::string_view::npos) return {};
    text.remove_prefix(comma + 1);
  }
}

}  // namespace moestro
