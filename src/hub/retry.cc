// SPDX-License-Identifier: MIT
#include "hub/retry.h"

#include <algorithm>
#include <cmath>

namespace moestro {

std::optional<double> Retries::AfterFailure(std::optional<double> asked) {
  if (++failures_ >= policy_.most_tries) return std::nullopt;
  const double doubled = std::ldexp(policy_.first_wait, std::min(failures_ - 1, 30));
  const double wait = std::min(doubled, policy_.longest_wait);
  if (!asked) return wait;
  if (!(*asked <= policy_.longest_asked)) return std::nullopt;
  return std::max(wait, *asked);
}

}  // namespace moestro
