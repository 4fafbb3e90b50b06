// SPDX-License-Identifier: MIT
// Older files of models with latent attention hold one matrix per layer that gives all heads' keys
// and values of a latent. Values are read where they lie. Keys are turned once, into matrices that
// bring a head's query to the latent.
//
// Thread rule: the engine thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "compute/head_products.h"
#include "core/model_spec.h"
#include "forward/dense/blocks.h"
#include "model/model_file.h"

namespace moestro {

class JoinedKeys {
 public:
  // 0: no layer has such a matrix.
  static uint64_t BytesFor(const ModelSpec& spec, const ModelWeights& weights);
  // Allocates the turned keys in memory and sets latent_k_b of their layers. `tensors` must not
  // outlive this. kNoMemory.
  static Result<JoinedKeys> Allocate(const ModelSpec& spec, const ModelWeights& weights,
                                     ModelTensors& tensors);
  // REQUIRES: the matrices of the same tensors are loaded.
  void Fill(const ModelTensors& tensors) const;

 private:
  std::vector<uint32_t> layers_;  // the layer of each matrix
  TurnedHeads keys_;
};

}  // namespace moestro
