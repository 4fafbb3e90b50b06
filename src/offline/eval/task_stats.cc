// SPDX-License-Identifier: MIT
#include "offline/eval/task_stats.h"

#include <algorithm>
#include <cmath>

namespace moestro {
namespace {

constexpr double kNormal95 = 1.959963984540054;  // 97.5 % quantile of the normal distribution

}  // namespace

Interval ShareInterval(uint64_t right, uint64_t items) {
  if (items == 0) return {};
  const auto n = static_cast<double>(items);
  const double share = static_cast<double>(right) / n;
  const double z2 = kNormal95 * kNormal95;
  const double middle = (share + z2 / (2.0 * n)) / (1.0 + z2 / n);
  const double half =
      kNormal95 / (1.0 + z2 / n) * std::sqrt(share * (1.0 - share) / n + z2 / (4.0 * n * n));
  return {.low = std::max(0.0, middle - half), .high = std::min(1.0, middle + half)};
}

double McNemar(uint64_t gained, uint64_t lost) {
  const auto n = static_cast<double>(gained + lost);
  double sum = 0.0;
  for (uint64_t k = 0; k <= std::min(gained, lost); ++k) {
    const auto chosen = static_cast<double>(k);
    sum += std::exp(std::lgamma(n + 1.0) - std::lgamma(chosen + 1.0) -
                    std::lgamma(n - chosen + 1.0) - n * std::log(2.0));
  }
  return std::min(1.0, 2.0 * sum);
}

}  // namespace moestro
