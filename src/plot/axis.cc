// SPDX-License-Identifier: MIT
#include "plot/axis.h"

#include <algorithm>
#include <cmath>

namespace moestro {

double ChartAxis::share(double value) const {
  const auto place = [this](double v) { return is_logarithmic ? std::log(v) : v; };
  const double first = place(ticks.front());
  const double last = place(ticks.back());
  if (last <= first) return 0.5;
  return std::clamp((place(value) - first) / (last - first), 0.0, 1.0);
}

std::vector<double> RoundTicks(double most) {
  if (!(most > 0.0) || !std::isfinite(most)) return {0.0, 1.0};
  const double rough = most / 5.0;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double leading = rough / power;
  const double step = power * (leading <= 1.0   ? 1.0
                               : leading <= 2.0 ? 2.0
                               : leading <= 5.0 ? 5.0
                                                : 10.0);
  // A rounding error adds no step.
  const int steps = std::max(1, static_cast<int>(std::ceil(most / step - 1e-9)));
  std::vector<double> ticks;
  for (int i = 0; i <= steps; ++i) ticks.push_back(step * i);
  return ticks;
}

}  // namespace moestro
