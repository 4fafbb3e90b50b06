// SPDX-License-Identifier: MIT
// Numbers that attention adds to scores by the distance of key and query, one row of numbers for
// each head. Pure. Source: C. Raffel et al., "Exploring the Limits of Transfer Learning", 2020,
// section 2.1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/model_spec.h"

namespace moestro {

// The range of a distance, key's position less query's: 0 to n_buckets - 1. Each near distance has
// a range of its own; far distances share ranges by their logarithm. Rounding is as in float32.
uint32_t BucketOf(const RelativeBias& bias, int64_t distance);

class RelativeScores {
 public:
  // of: F32 [range][head]. most: distances are -most to most.
  RelativeScores(const RelativeBias& bias, const float* of, uint32_t n_head, uint32_t most);

  // Numbers times log2(e) for AttentionKernel::kKeys keys, from `distance` on. Keys of a block that
  // no row attends to may be at other distances. REQUIRES: |distance| <= most + kKeys.
  const float* From(uint32_t head, int64_t distance) const;
  static uint64_t BytesFor(uint32_t n_head, uint32_t most);

 private:
  static size_t WidthFor(uint32_t most);
  size_t width_;
  int64_t zero_;               // index of distance 0 in a row
  std::vector<float> scores_;  // [head][distance]
};

}  // namespace moestro
