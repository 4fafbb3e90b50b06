// SPDX-License-Identifier: MIT
#include "base/quantile.h"

#include <algorithm>
#include <cstddef>

#include "base/check.h"

namespace moestro {

double Quantile(std::vector<double> values, double q) {
  CHECK(q >= 0.0 && q <= 1.0);
  if (values.empty()) return 0.0;
  std::ranges::sort(values);
  const double place = q * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, values.size() - 1);
  const double share = place - static_cast<double>(below);
  return values[below] + share * (values[above] - values[below]);
}

}  // namespace moestro
