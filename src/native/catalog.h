// SPDX-License-Identifier: MIT
// Makes from the file's tensors what residency and the kernels need.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "compute/head_products.h"
#include "core/expert_catalog.h"
#include "core/extent.h"
#include "core/ids.h"
#include "core/model_spec.h"
#include "forward/dense/blocks.h"
#include "forward/experts/expert_exec.h"
#include "model/low_copies.h"
#include "model/model_file.h"

namespace moestro {

// A catalog with one copy of every expert: the model's own. Layers are those with experts, in all
// functions of this file.
ExpertCatalog MakeCatalog(const ModelWeights& weights);

// Adds a low copy of every expert. `first_file`: index of the low copies' first file in the
// reader's list of files. REQUIRES: `low` was opened for the model of the catalog.
void AddLowCopies(const LowCopies& low, uint32_t first_file, ExpertCatalog& catalog);

// The bytes of the expert's matrices.
uint64_t BytesOf(const ExpertCatalog& catalog, ExpertKey key);

// One entry per form of the catalog. kUnsupported for a type without a kernel.
Result<std::vector<FormKernels>> FindFormKernels(const ExpertCatalog& catalog, bool own_kernels);

// One entry per layer: what the model's family adds to the matrices. `tensors` still own the data.
std::vector<LayerForm> LayerFormsOf(const ModelSpec& spec, const ModelTensors& tensors);

// Older files of models with latent attention hold one matrix per layer that gives all heads' keys
// and values of a latent. Values are read where they lie. Keys are turned once, into matrices that
// bring a head's query to the latent.
//
// Thread rule: the engine thread.

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
