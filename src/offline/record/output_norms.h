// SPDX-License-Identifier: MIT
// Mean lengths of the experts' outputs, measured while a model reads texts: for the importance
// "score-norm".
#pragma once

#include <cstdint>
#include <vector>

#include "core/model_id.h"
#include "decide/layer/importance/importance.h"
#include "engine/watchers.h"

namespace moestro {

class OutputNorms {
 public:
  // n_embd: the width of an expert's output, ModelSpec::n_embd_expert().
  OutputNorms(const MoeShape& shape, uint32_t n_embd);

  void Add(const SeenExperts& seen);
  // An expert that no row visited has its layer's mean; 1 where no expert of a layer was visited.
  ExpertNorms Mean() const;

 private:
  MoeShape shape_;
  uint32_t n_embd_;
  std::vector<double> sums_;      // [layer][expert]
  std::vector<uint64_t> counts_;  // [layer][expert]
};

}  // namespace moestro
