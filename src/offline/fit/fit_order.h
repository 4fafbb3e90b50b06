// SPDX-License-Identifier: MIT
// Order in which experts go to a lower width, and a test whether measurements determine an order.
// Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "offline/eval/eval_stats.h"

namespace moestro {

// Loss that a fitted model may have. Plain values.

// Loss that the experts' widths may cost against the unchanged model.
struct FitTolerance {
  enum class Kind : uint8_t { kKl, kPerplexity };
  Kind kind = Kind::kKl;
  double most = 0.0;  // nats per token; or the rise of perplexity, as a share

  std::string Text(double loss) const;  // "KL=0.01", "ppl=1%"
};
// "KL=0.01" or "ppl=1%". kUsage.
Result<FitTolerance> ParseTolerance(std::string_view text);

// Share of the measured values' scatter that their errors alone would make: the mean squared error
// over the variance. From about 1 on the values do not determine the order; infinite when they do
// not differ at all, or when an error is not known.
double NoiseShare(std::span<const Estimate> measured);

// Limit of NoiseShare(), beyond which differences count as within the error.
inline constexpr double kMostNoise = 0.5;

// Indices by rising `score`; equal ones by rising `tie`, then by index. REQUIRES: equal sizes.
std::vector<uint32_t> RisingOrder(std::span<const double> score, std::span<const double> tie);

// All experts ([layer][expert]), every beginning of them spread over the layers: by chance within a
// layer, one of each layer in turn. Every call gives the same order.
std::vector<uint32_t> SpreadOver(uint32_t layers, uint32_t experts);

// Spearman's correlation, of the ranks, with equal values at the mean of their ranks. 0 when one
// side has a single value. REQUIRES: equal sizes.
double RankCorrelation(std::span<const double> a, std::span<const double> b);

// An estimate is used if its RankCorrelation() with the measured values of so many experts is at
// least kLeastCorrelation. Then it puts two of three pairs in the measured order; an estimate
// without information gets there by chance in one of 28,000 samples of this size (four standard
// errors of 1/sqrt(63)).
inline constexpr size_t kFitSample = 64;
inline constexpr double kLeastCorrelation = 0.5;

}  // namespace moestro
