// SPDX-License-Identifier: MIT
#include "offline/record/output_norms.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

#include "base/check.h"
#include "core/layer_plan.h"

namespace moestro {

OutputNorms::OutputNorms(const MoeShape& shape, uint32_t n_embd, bool keeps_windows)
    : shape_(shape),
      n_embd_(n_embd),
      keeps_windows_(keeps_windows),
      sums_(shape.experts()),
      window_(shape.experts()),
      counts_(shape.experts()) {}

void OutputNorms::Add(const SeenExperts& seen) {
  for (const PlannedExpert& expert : seen.plan.experts) {
    CHECK(size_t{expert.first_pair + expert.n_pairs} * n_embd_ <= seen.results.size());
    const size_t at = size_t{seen.plan.layer.value} * shape_.n_expert + expert.key.expert.value;
    for (size_t pair = expert.first_pair; pair < expert.first_pair + expert.n_pairs; ++pair) {
      double squares = 0.0;
      for (const float x : seen.results.subspan(pair * n_embd_, n_embd_)) {
        squares += static_cast<double>(x) * static_cast<double>(x);
      }
      const float scale = seen.scale.empty() ? 1.0F : seen.scale[expert.key.expert.value];
      window_[at] += std::sqrt(squares) * std::abs(static_cast<double>(scale));
    }
    counts_[at] += expert.n_pairs;
  }
}

void OutputNorms::EndWindow() {
  AddWindow(window_);
  if (keeps_windows_) windows_.push_back(window_);
  std::ranges::fill(window_, 0.0);
}

void OutputNorms::AddWindow(std::span<const double> sums) {
  for (size_t i = 0; i < sums_.size(); ++i) sums_[i] += sums[i];
}

void OutputNorms::AddCounts(std::span<const uint64_t> counts) {
  for (size_t i = 0; i < counts_.size(); ++i) counts_[i] += counts[i];
}

ExpertNorms OutputNorms::Mean() const {
  ExpertNorms norms{.shape = shape_, .values = std::vector<float>(sums_.size(), 1.0F)};
  for (size_t begin = 0; begin < sums_.size(); begin += shape_.n_expert) {
    double sum = 0.0;
    uint32_t visited = 0;
    for (size_t i = begin; i < begin + shape_.n_expert; ++i) {
      if (counts_[i] == 0) continue;
      const double mean = (sums_[i] + window_[i]) / static_cast<double>(counts_[i]);
      norms.values[i] = static_cast<float>(mean);
      sum += mean;
      ++visited;
    }
    for (size_t i = begin; i < begin + shape_.n_expert && visited > 0; ++i) {
      if (counts_[i] == 0) norms.values[i] = static_cast<float>(sum / visited);
    }
  }
  return norms;
}

}  // namespace moestro
