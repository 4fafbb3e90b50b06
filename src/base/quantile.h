// SPDX-License-Identifier: MIT
// Order statistics of a handful of measurements.
#pragma once

#include <utility>
#include <vector>

namespace moestro {

// The value below which a share `q` of `values` lies, interpolated between neighbours (Hyndman and
// Fan's type 7). 0 for no values. REQUIRES: 0 <= q <= 1.
double Quantile(std::vector<double> values, double q);

inline double Median(std::vector<double> values) { return Quantile(std::move(values), 0.5); }

}  // namespace moestro
