// SPDX-License-Identifier: MIT
// Which experts a batch of tokens goes to, and with what weight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/ids.h"

namespace moestro {

// Row t holds token t's K experts in router order (largest probability first; ties by lower id).
// Within a row no expert repeats.
struct Routing {
  uint32_t n_tokens = 0;
  uint32_t n_used = 0;            // K
  std::vector<ExpertId> experts;  // [n_tokens][n_used]
  std::vector<float> weights;     // [n_tokens][n_used]

  std::span<const ExpertId> experts_of(size_t token) const {
    return std::span(experts).subspan(token * n_used, n_used);
  }
  std::span<const float> weights_of(size_t token) const {
    return std::span(weights).subspan(token * n_used, n_used);
  }
};

}  // namespace moestro
