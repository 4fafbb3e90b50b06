// SPDX-License-Identifier: MIT
// Matrices of heads times activations as nodes of a graph: each head's values times the head's own
// matrix, which lies as in the file. A row's product has the same bits whatever rows are beside it.
//
// Thread rule: Node() and the graph on the engine thread; the nodes themselves run on all threads
// of the team.
#pragma once

#include <ggml.h>

#include <memory>
#include <vector>

#include "device/expert_kernel.h"

namespace moestro {

class HeadProducts {
 public:
  // matrices [n_in, n_out, n_head] in memory, rows of a matrix one after the other; x F32 [n_in,
  // n_head, rows], the values of a head one after the other -> [n_out, n_head, rows]. This must
  // outlive the graph. REQUIRES: FindExpertKernel() has a kernel for the type.
  ggml_tensor* Node(ggml_context* ctx, ggml_tensor* matrices, ggml_tensor* x);

 private:
  // A kernel of ours for weights that a WeightSet gave one (device/weight_set.h), else ggml's.
  const ExpertKernel& KernelFor(const ggml_tensor* matrices);

  struct Known {
    ggml_type type = GGML_TYPE_COUNT;
    bool is_own = false;
    std::unique_ptr<const ExpertKernel> kernel;
  };
  std::vector<Known> known_;
};

}  // namespace moestro
