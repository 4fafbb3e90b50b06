// SPDX-License-Identifier: MIT
// A model's file, opened: its directory, its specification, the places of its tensors. Made once by
// the code that opens a model and handed along, so that the header is parsed once.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/model_spec.h"
#include "core/run_identity.h"
#include "core/tensor_roles.h"
#include "model/expert_tensors.h"
#include "model/families/families.h"
#include "model/gguf_file.h"

namespace moestro {

// The tensors of a supported model under their roles: dense ones resident, experts by slice. All
// names, shapes and types have been checked, so nothing downstream can make ggml abort.

// Dense tensors by role; nullptr where the family or file has none. Pointers lead into the
// GgufFile, which must outlive this.
struct LayerWeights : LayerRoles<const TensorInfo*> {
  LayerExperts experts;  // empty in a dense layer
};

struct ModelWeights : ModelTree<const TensorInfo*, LayerWeights> {
  std::optional<FitHeader> fit;  // set for a fitted model

  // Bytes of all dense tensors, each counted once.
  uint64_t dense_bytes() const;
  // Every dense tensor once, without tables that stay on the disk.
  std::vector<const TensorInfo*> dense_tensors() const;
};

// Fails with kInvalidFile (missing tensor, wrong shape: both expected and actual) or kUnsupported
// (a type that ggml's CPU backend cannot multiply: lists the types that it can; a tensor without a
// place in the family). REQUIRES: `spec` was read from `file` with these families.
Result<ModelWeights> ReadWeights(const GgufFile& file, const ModelSpec& spec,
                                 std::span<const Family> families = Families());

struct ModelFile {
  GgufFile gguf;
  ModelSpec spec;
  ModelId id;            // the name is the file's
  ModelWeights weights;  // points into gguf; still does when both are moved

  // `path` as in GgufFile::Open(). Fails as that and Of() do.
  static Result<ModelFile> Open(const std::string& path,
                                std::span<const Family> families = Families());
  // Takes `gguf` over. Fails as ReadSpec() and ReadWeights() do; then `gguf` is as it was.
  // `next`: a file is opened again in place for its layer that predicts further tokens. The id is
  // the same: that layer counts in no file beside the model.
  static Result<ModelFile> Of(GgufFile& gguf, std::span<const Family> families = Families(),
                              NextTokens next = NextTokens::kPassedOver);
};

}  // namespace moestro
