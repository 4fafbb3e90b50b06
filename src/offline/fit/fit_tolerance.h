// SPDX-License-Identifier: MIT
// How much a fitted model may lose. Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace moestro {

// What the experts' widths may cost against the model as it is.
struct FitTolerance {
  enum class Kind : uint8_t { kKl, kPerplexity };
  Kind kind = Kind::kKl;
  double most = 0.0;  // nats per token; or how much higher perplexity may be, as a share of it

  std::string Text(double loss) const;  // "KL=0.01", "ppl=1%"
};
// "KL=0.01" or "ppl=1%". kUsage.
Result<FitTolerance> ParseTolerance(std::string_view text);

}  // namespace moestro
