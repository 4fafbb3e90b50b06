// SPDX-License-Identifier: MIT
// Plans the tensors of a Switch Transformers GGUF, and the tensors of a folder that they are made
// of: docs/switch-format.md. Pure functions.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "offline/convert/folder_weights.h"
#include "offline/convert/switch_config.h"

namespace moestro {

// A tensor of the folder.
struct NamedTensor {
  std::string name;
  StoredTensor stored;
};

// A tensor of the GGUF.
struct ConvertedTensor {
  std::string name;
  ggml_type type = GGML_TYPE_F32;
  std::vector<int64_t> ne;           // a row first
  std::vector<NamedTensor> sources;  // one; for a layer's experts one each, by rising id

  int64_t width() const { return ne[0]; }
  // Rows of each source.
  uint64_t rows() const { return ne.size() < 2 ? 1 : static_cast<uint64_t>(ne[1]); }
  uint64_t source_bytes() const { return ggml_row_size(type, width()) * rows(); }
  uint64_t bytes() const { return source_bytes() * sources.size(); }
};

struct SwitchTensors {
  std::vector<ConvertedTensor> tensors;  // in file order
  // Two copies of one tensor, of one type and shape. The file has one, so they must be equal.
  std::vector<std::pair<NamedTensor, NamedTensor>> copies;
};

// type: of the matrices. kInvalidFile: a tensor is missing, has another shape than the
// configuration requires, or has no place in the file; kInvalidRequest: rows are no whole number of
// the type's blocks.
Result<SwitchTensors> PlanSwitchTensors(const SwitchConfig& config, const FolderWeights& weights,
                                        ggml_type type);

}  // namespace moestro
