// SPDX-License-Identifier: MIT
#include "engine/engine_options.h"

#include <string_view>

#include "base/bytes.h"
#include "base/number.h"
#include "base/system_limits.h"

namespace moestro {

Result<CacheSize> ParseCacheSize(const std::string& text) {
  CacheSize size;
  if (!text.ends_with('%')) {
    TRY(size.bytes, ParseBytes(text));
    if (size.bytes == 0) return Fail(Errc::kUsage, "a cache of 0 bytes cannot hold an expert");
    return size;
  }
  const std::string_view number(text.data(), text.size() - 1);
  size.percent = ParseNumber<double>(number).value_or(0.0);
  if (!(size.percent > 0.0) || size.percent > 100.0) {
    return Fail(Errc::kUsage, "'{}' is not a share of the experts; write for example 25%", text);
  }
  return size;
}

uint32_t ResolveThreads(uint32_t threads) { return threads > 0 ? threads : PhysicalCores(); }

std::string_view NameOf(CostSource source) {
  switch (source) {
    case CostSource::kMeasured:
      return "measured";
    case CostSource::kKept:
      return "kept";
    case CostSource::kFile:
      return "file";
  }
  return "";
}

}  // namespace moestro
