// SPDX-License-Identifier: MIT
// Where the routed experts of a layer lie in a file, in whichever of three forms it has them: one
// tensor for each matrix of all experts, gate and up of all experts in one, or a tensor for each
// matrix of each expert. Plain values; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/extent.h"
#include "core/ids.h"
#include "core/model_spec.h"
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

// A tensor of experts' matrices, one after the other.
struct ExpertTensor {
  const TensorInfo* info = nullptr;  // leads into the GgufFile
  Matrix matrix = Matrix::kGate;     // of a fused tensor kGate
  bool is_fused = false;             // gate and up of each expert follow one another
  uint32_t first_expert = 0;
  uint32_t n_experts = 1;
};

// Those of `layer` of the file, with the shapes that `spec` demands: gate, up, down, and within
// them by expert. `remedy` ends the message for a missing one. Fails with kInvalidFile (missing
// tensor, wrong shape) or kUnsupported (a type that cannot be multiplied, or differs between
// experts).
Result<std::vector<ExpertTensor>> FindExpertTensors(const GgufFile& file, const ModelSpec& spec,
                                                    uint32_t layer, std::string_view remedy);

// The matrices of each expert. REQUIRES: `tensors` came from FindExpertTensors().
LayerExperts SliceExperts(std::span<const ExpertTensor> tensors);

}  // namespace moestro
