// SPDX-License-Identifier: MIT
#include "base/distribution.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "base/result.h"

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

namespace {

constexpr double kGrowth = 1.01;
constexpr double kLeast = 1e-3;
constexpr double kMost = 1e15;

int ClassOf(double value) {
  if (value < kLeast) return -1;
  return static_cast<int>(std::log(std::min(value, kMost) / kLeast) / std::log(kGrowth));
}

// The middle of a class by ratio: sqrt(1.01) from either bound.
double MiddleOf(int index) { return index < 0 ? 0.0 : kLeast * std::pow(kGrowth, index + 0.5); }

}  // namespace

void Histogram::Add(double value) {
  CHECK(value >= 0.0);
  Class& c = classes_[ClassOf(value)];
  ++c.count;
  c.sum += value;
  least_ = count_ == 0 ? value : std::min(least_, value);
  most_ = std::max(most_, value);
  ++count_;
}

double Histogram::Ranked(uint64_t rank) const {
  uint64_t below = 0;
  for (const auto& [index, c] : classes_) {
    below += c.count;
    if (rank < below) return std::clamp(MiddleOf(index), least_, most_);
  }
  return most_;
}

double Histogram::Quantile(double q) const {
  CHECK(q >= 0.0 && q <= 1.0);
  if (count_ == 0) return 0.0;
  const double place = q * static_cast<double>(count_ - 1);
  const auto below = static_cast<uint64_t>(place);
  const double share = place - static_cast<double>(below);
  const double low = Ranked(below);
  return low + share * (Ranked(std::min(below + 1, count_ - 1)) - low);
}

double Histogram::SumOfAtLeast(double floor) const {
  double sum = 0.0;
  for (const auto& [index, c] : classes_) {
    sum += std::max(c.sum, floor * static_cast<double>(c.count));
  }
  return sum;
}

}  // namespace moestro
