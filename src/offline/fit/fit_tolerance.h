// SPDX-License-Identifier: MIT
// Loss that a fitted model may have. Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace moestro {

// Loss that the experts' widths may cost against the unchanged model.
struct FitTolerance {
  enum class Kind : uint8_t { kKl, kPerplexity };
  Kind kind = Kind::kKl;
  double most = 0.0;  // nats per token; or the rise of perplexity, as a share

  std::string Text(double loss) const;  // "KL=0.01", "ppl=1%"
};
// "KL=0.01" or "ppl=1%". kUsage.
Result<FitTolerance> ParseTolerance(std::string_view text);

}  // namespace moestro
