// SPDX-License-Identifier: MIT
// One axis of a chart: the values that it shows, and the place of a value on it. Plain values.
#pragma once

#include <string>
#include <vector>

namespace moestro {

struct ChartAxis {
  std::string label;
  std::vector<double> ticks;  // rising; the axis ends at the first and at the last
  std::string unit = {};      // stands behind each tick's value
  bool is_logarithmic = false;

  // 0 at the first tick, 1 at the last; values beyond an end lie at the end. 0.5 if all ticks are
  // equal. REQUIRES: ticks are not empty; a logarithmic axis has positive ticks and values.
  double share(double value) const;
};

// Ticks from 0 in round steps (1, 2 or 5 times a power of ten) that hold `most`, about five of
// them. 0 and 1 if `most` is not a positive number.
std::vector<double> RoundTicks(double most);

}  // namespace moestro
