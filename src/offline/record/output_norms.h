// SPDX-License-Identifier: MIT
// Mean lengths of the experts' outputs, measured while a model reads texts: for the importance
// "score-norm".
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/model_id.h"
#include "decide/layer/importance/importance.h"
#include "engine/watchers.h"

namespace moestro {

// Keeps one sum for each window, and adds the sums in the order of the text: the means are the same
// to the bit, whether one run read all windows or several shared them.
class OutputNorms {
 public:
  // n_embd: the width of an expert's output, ModelSpec::n_embd_expert(). `keeps_windows`: for
  // windows().
  OutputNorms(const MoeShape& shape, uint32_t n_embd, bool keeps_windows = false);

  void Add(const SeenExperts& seen);
  void EndWindow();  // later rows belong to the next window
  // An expert that no row visited has its layer's mean; 1 where no expert of a layer was visited.
  ExpertNorms Mean() const;

  // windows(): for each window that ended, [layer][expert], the sums of lengths. counts(): the rows
  // of all windows together that came to each expert.
  std::span<const std::vector<double>> windows() const { return windows_; }
  std::span<const uint64_t> counts() const { return counts_; }
  // Add another run's windows and counts. REQUIRES: no window is begun; as many values as experts
  // of all layers.
  void AddWindow(std::span<const double> sums);
  void AddCounts(std::span<const uint64_t> counts);

 private:
  MoeShape shape_;
  uint32_t n_embd_;
  bool keeps_windows_;
  std::vector<double> sums_;    // [layer][expert], of windows that ended
  std::vector<double> window_;  // sums of the window that is read
  std::vector<std::vector<double>> windows_;
  std::vector<uint64_t> counts_;  // [layer][expert]
};

}  // namespace moestro
