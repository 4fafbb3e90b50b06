// SPDX-License-Identifier: MIT
// The tensors of a supported model under their roles: dense ones resident, experts by slice. All
// names, shapes and types have been checked, so nothing downstream can make ggml abort.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/model_spec.h"
#include "core/tensor_roles.h"
#include "model/expert_tensors.h"
#include "model/families/families.h"
#include "model/fitted.h"
#include "model/gguf_file.h"

namespace moestro {

// Dense tensors by role; nullptr where the family or file has none. Pointers lead into the
// GgufFile, which must outlive this.
struct LayerWeights : LayerRoles<const TensorInfo*> {
  LayerExperts experts;  // empty in a dense layer
};

struct ModelWeights : ModelTree<const TensorInfo*, LayerWeights> {
  std::optional<FitHeader> fit;  // set for a fitted model

  // Bytes of all dense tensors, each counted once.
  uint64_t dense_bytes() const;
  // Every dense tensor once.
  std::vector<const TensorInfo*> dense_tensors() const;
};

// Fails with kInvalidFile (missing tensor, wrong shape: both expected and actual) or kUnsupported
// (a type that ggml's CPU backend cannot multiply: lists the types that it can; a tensor without a
// place in the family). REQUIRES: `spec` was read from `file` with these families.
Result<ModelWeights> ReadWeights(const GgufFile& file, const ModelSpec& spec,
                                 std::span<const Family> families = Families());

}  // namespace moestro
