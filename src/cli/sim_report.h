// SPDX-License-Identifier: MIT
// What `moestro sim` replayed, as lines for people, as CSV and as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/replay.h"
#include "sim/tune_sizes.h"

namespace moestro {

struct SimLine {
  std::string policy;
  uint64_t slots = 0;
  double percent = 0.0;  // of all experts
  ReplayResult result;
};

// Each with a final newline.
std::string DescribeLines(const std::vector<SimLine>& lines);
std::string LinesAsCsv(const std::vector<SimLine>& lines);
std::string LinesAsJson(const std::vector<SimLine>& lines);

std::string DescribeTuning(const std::vector<TunedAtSize>& sizes);
std::string TuningAsJson(const std::vector<TunedAtSize>& sizes);

}  // namespace moestro
