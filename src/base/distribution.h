// SPDX-License-Identifier: MIT
// Order statistics of a handful of measurements, and the distribution of any number.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace moestro {

// The value below which a share `q` of `values` lies, interpolated between neighbours (Hyndman and
// Fan's type 7). 0 for no values. REQUIRES: 0 <= q <= 1.
double Quantile(std::vector<double> values, double q);

inline double Median(std::vector<double> values) { return Quantile(std::move(values), 0.5); }

// The distribution of any number of values >= 0 in bounded memory: counts and sums of classes whose
// bounds grow by 1 %. Values below 0.001 share a class, and so do those above 1e15.

class Histogram {
 public:
  // REQUIRES: value >= 0.
  void Add(double value);

  uint64_t count() const { return count_; }
  // Like Quantile() of base/distribution.h, off by 0.5 % at most for values from 0.001 to 1e15 (one
  // value stands for its whole class), never outside the smallest and largest. Exact for a single
  // value.
  double Quantile(double q) const;
  // The sum over all values of max(value, floor). Never too large; too small by less than 0.5 %,
  // because only the class that holds `floor` is not known value by value.
  double SumOfAtLeast(double floor) const;

 private:
  struct Class {
    uint64_t count = 0;
    double sum = 0.0;
  };
  double Ranked(uint64_t rank) const;

  std::map<int, Class> classes_;  // by the logarithm of the lower bound; at most 4168
  uint64_t count_ = 0;
  double least_ = 0.0;
  double most_ = 0.0;
};

}  // namespace moestro
