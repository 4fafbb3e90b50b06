// SPDX-License-Identifier: MIT
// The distinct experts of several rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/ids.h"

namespace moestro {

class ExpertUnion {
 public:
  void Reset(uint32_t experts) { is_in_.assign(experts, false); }

  // The distinct experts of `rows`, [row][used], best first in each row: all rows' first choices,
  // then all second ones, and so on. The span lives until the next call.
  std::span<const ExpertId> ByRank(std::span<const ExpertId> rows, uint32_t used) {
    experts_.clear();
    for (size_t rank = 0; rank < used; ++rank) {
      for (size_t at = rank; at < rows.size(); at += used) {
        if (is_in_[rows[at].value]) continue;
        is_in_[rows[at].value] = true;
        experts_.push_back(rows[at]);
      }
    }
    for (const ExpertId expert : experts_) is_in_[expert.value] = false;
    return experts_;
  }

 private:
  std::vector<bool> is_in_;
  std::vector<ExpertId> experts_;
};

}  // namespace moestro
