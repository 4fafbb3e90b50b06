// SPDX-License-Identifier: MIT
#include "decide/layer/little_options.h"

#include "base/format.h"
#include "base/number.h"

namespace moestro {

Result<uint32_t> CheckLittle(const LittleOptions& options, uint32_t n_used, bool has_low) {
  const uint32_t little = options.is_half ? n_used / 2 : options.n_used.value_or(0);
  if (little == 0 || little >= n_used) {
    return Fail(Errc::kUsage,
                "--little {}: this model uses {} experts for a token; its little pass can use {}",
                little, n_used, n_used > 1 ? Format("1 to {}", n_used - 1) : "no fewer");
  }
  if (options.misses == Misses::kLow && !has_low) {
    return Fail(Errc::kUsage, "--little-misses low needs low copies; give --low FILE");
  }
  return little;
}

Status SetLittleUsed(LittleOptions& options, const std::string& text) {
  options.n_used.reset();
  options.is_half = text == "half";
  if (options.is_half || text == "off") return {};
  options.n_used = ParseNumber<uint32_t>(text);
  if (options.n_used) return {};
  return Fail(Errc::kUsage, "'{}' is no number of experts; write one, half or off", text);
}

std::string ToText(const LittleOptions& options) {
  if (options.is_half) return "half";
  return options.n_used ? Format("{}", *options.n_used) : "off";
}

Result<Misses> ParseMisses(std::string_view text) {
  for (const Misses misses : {Misses::kRead, Misses::kLow, Misses::kDrop}) {
    if (text == ToString(misses)) return misses;
  }
  return Fail(Errc::kUsage, "'{}' is no answer to a miss; write read, low or drop", text);
}

std::string_view ToString(Misses misses) {
  switch (misses) {
    case Misses::kRead:
      return "read";
    case Misses::kLow:
      return "low";
    case Misses::kDrop:
      return "drop";
  }
  return "";
}

}  // namespace moestro
