// SPDX-License-Identifier: MIT
#include "forward/dense/relative_scores.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "device/attention_kernel.h"

namespace moestro {
namespace {

constexpr int64_t kKeys = AttentionKernel::kKeys;

}  // namespace

uint32_t BucketOf(const RelativeBias& bias, int64_t distance) {
  const uint32_t n = bias.is_two_sided ? bias.n_buckets / 2 : bias.n_buckets;
  const uint32_t side = bias.is_two_sided && distance > 0 ? n : 0;
  const int64_t far = bias.is_two_sided ? std::abs(distance) : std::max<int64_t>(-distance, 0);
  const uint32_t exact = n / 2;
  if (far < exact) return side + static_cast<uint32_t>(far);
  const float ratio = std::log(static_cast<float>(far) / static_cast<float>(exact)) /
                      static_cast<float>(std::log(static_cast<double>(bias.max_distance) / exact));
  const float behind = ratio * static_cast<float>(n - exact);
  const auto bucket = static_cast<uint32_t>(static_cast<float>(exact) + std::floor(behind));
  return side + std::min(bucket, n - 1);
}

// Blocks begin up to a block before the first position and end up to a block behind the last one.
size_t RelativeScores::WidthFor(uint32_t most) {
  return 2 * (size_t{most} + 2 * static_cast<size_t>(kKeys)) + 1;
}

uint64_t RelativeScores::BytesFor(uint32_t n_head, uint32_t most) {
  return WidthFor(most) * n_head * sizeof(float);
}

RelativeScores::RelativeScores(const RelativeBias& bias, const float* of, uint32_t n_head,
                               uint32_t most)
    : width_(WidthFor(most)), zero_(int64_t{most} + 2 * kKeys), scores_(width_ * n_head) {
  for (size_t i = 0; i < width_; ++i) {
    const uint32_t bucket = BucketOf(bias, static_cast<int64_t>(i) - zero_);
    for (uint32_t head = 0; head < n_head; ++head) {
      scores_[head * width_ + i] =
          of[size_t{bucket} * n_head + head] * std::numbers::log2e_v<float>;
    }
  }
}

const float* RelativeScores::From(uint32_t head, int64_t distance) const {
  const int64_t at = zero_ + distance;
  CHECK(at >= 0 && static_cast<size_t>(at + kKeys) <= width_);
  return scores_.data() + head * width_ + at;
}

}  // namespace moestro
