// SPDX-License-Identifier: MIT
// The tensors of a supported model under their roles: dense ones resident, experts by slice. All
// names, shapes and types have been checked, so nothing downstream can make ggml abort.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/extent.h"
#include "core/ids.h"
#include "core/model_spec.h"
#include "core/tensor_roles.h"
#include "model/families/families.h"
#include "model/gguf_file.h"

namespace moestro {

// One kind of expert matrix of one layer: E slices of equal size, rows of n_in weights.
struct ExpertMatrix {
  ggml_type type = GGML_TYPE_F32;
  uint32_t n_in = 0;
  uint32_t n_out = 0;
  uint64_t slice_bytes = 0;    // one expert's matrix
  std::vector<Extent> slices;  // [n_expert]
};

struct LayerExperts {
  std::array<ExpertMatrix, kMatrices> matrices;  // indexed by Matrix
  const ExpertMatrix& operator[](Matrix m) const { return matrices[static_cast<size_t>(m)]; }
  bool is_empty() const { return matrices[0].slices.empty(); }
  uint64_t expert_bytes() const {  // gate + up + down of one expert
    return matrices[0].slice_bytes + matrices[1].slice_bytes + matrices[2].slice_bytes;
  }
};

// Dense tensors by role; nullptr where the family or file has none. Pointers lead into the
// GgufFile, which must outlive this.
struct LayerWeights : LayerRoles<const TensorInfo*> {
  LayerExperts experts;  // empty in a dense layer
};

struct ModelWeights : ModelTree<const TensorInfo*, LayerWeights> {
  // Bytes of all dense tensors, each counted once.
  uint64_t dense_bytes() const;
  // Every dense tensor once.
  std::vector<const TensorInfo*> dense_tensors() const;
};

// Fails with kInvalidFile (missing tensor, wrong shape: both expected and actual) or kUnsupported
// (a type that ggml's CPU backend cannot multiply: lists those it can; a tensor that the family has
// no place for). REQUIRES: `spec` was read from `file` with these families.
Result<ModelWeights> ReadWeights(const GgufFile& file, const ModelSpec& spec,
                                 std::span<const Family> families = Families());

}  // namespace moestro
