// SPDX-License-Identifier: MIT
// Older files of models with latent attention hold one matrix of each layer that gives all heads'
// keys and values of a latent. Values are read where they lie; keys are turned once, into what
// brings a head's query to the latent.
//
// Thread rule: the engine thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "core/model_spec.h"
#include "device/turned_heads.h"
#include "forward/dense/tensors.h"
#include "model/weights.h"

namespace moestro {

class JoinedKeys {
 public:
  // 0: no layer has such a matrix.
  static uint64_t BytesFor(const ModelSpec& spec, const ModelWeights& weights);
  // In memory; sets latent_k_b of these layers. `tensors` must not outlive this. kNoMemory.
  static Result<JoinedKeys> Allocate(const ModelSpec& spec, const ModelWeights& weights,
                                     ModelTensors& tensors);
  // REQUIRES: the matrices of the same tensors are loaded.
  void Fill(const ModelTensors& tensors) const;

 private:
  std::vector<uint32_t> layers_;  // of each matrix
  TurnedHeads keys_;
};

}  // namespace moestro
