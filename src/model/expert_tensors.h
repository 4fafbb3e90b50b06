// SPDX-License-Identifier: MIT
// Finds the routed experts of a layer in a file, in any of the forms that files have: one tensor
// for each matrix of all experts, gate and up of all experts in one, a tensor for each matrix of
// each expert, or those of a fitted model (FittedTensors). Plain values; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/extent.h"
#include "core/ids.h"
#include "core/model_spec.h"
#include "model/file_checks.h"
#include "model/gguf_file.h"

namespace moestro {

// Key that marks a file whose routed experts are holes: the speed of reading them means nothing.
inline constexpr const char* kSparseKey = "moestro.synthetic.sparse";

// One kind of expert matrix of one layer: a slice for each expert, n_out rows of n_in weights.
struct ExpertMatrix {
  uint32_t n_in = 0;
  uint32_t n_out = 0;
  std::vector<ggml_type> types;  // [n_expert]: all equal except in a fitted model
  std::vector<Extent> slices;    // [n_expert]
};

struct LayerExperts {
  std::array<ExpertMatrix, kMatrices> matrices;  // by Matrix; no slices: a missing matrix
  bool is_fused = false;  // the up matrix of each expert lies behind the gate matrix
  const ExpertMatrix& operator[](Matrix m) const { return matrices[static_cast<size_t>(m)]; }
  bool is_empty() const { return (*this)[Matrix::kDown].slices.empty(); }
  uint64_t bytes() const;  // of all matrices of all experts
};

// A tensor of experts' matrices, one after the other.
struct ExpertTensor {
  const TensorInfo* info = nullptr;  // leads into the GgufFile
  Matrix matrix = Matrix::kGate;     // of a fused tensor: kGate
  bool is_fused = false;             // gate and up of each expert follow one another
  uint32_t first_expert = 0;
  uint32_t n_experts = 1;
  std::vector<uint32_t> ids = {};  // experts in the tensor; empty: consecutive from first_expert on
};

// Finds the expert tensors of `layer` of the file, with the shapes that `spec` demands: gate, up,
// down, and per matrix by expert. `remedy` ends the message about a missing tensor. Fails with
// kInvalidFile (missing tensor, wrong shape) or kUnsupported (a type that cannot be multiplied, or
// differs between experts).
Result<std::vector<ExpertTensor>> FindExpertTensors(const GgufFile& file, const ModelSpec& spec,
                                                    uint32_t layer, std::string_view remedy);

// The shape of one matrix of `n` experts of a layer, as in a merged tensor.
TensorShape ExpertShape(const ModelSpec& spec, uint32_t layer, Matrix matrix, uint32_t n);

// The matrices of each expert. REQUIRES: `tensors` came from FindExpertTensors().
LayerExperts SliceExperts(std::span<const ExpertTensor> tensors);

// A fitted model: each expert at one of two widths, as `moestro fit` chose it. GGUF has one type
// for a tensor, so a layer's experts lie in two tensors for each matrix, and a key maps each expert
// to its tensor (docs/fitted-format.md). Nothing in the file is trusted. Plain values.

inline constexpr const char* kFitVersionKey = "moestro.fit.version";  // u32
inline constexpr const char* kFitFingerprintKey = "moestro.fit.source_fingerprint";
inline constexpr const char* kFitWeightsKey = "moestro.fit.source_weights";
inline constexpr const char* kFitNameKey = "moestro.fit.source_name";
inline constexpr const char* kFitHighKey = "moestro.fit.high";
inline constexpr const char* kFitLowKey = "moestro.fit.low";
inline constexpr const char* kFitImatrixKey = "moestro.fit.imatrix";
inline constexpr const char* kFitWidthKey = "moestro.fit.width";
inline constexpr uint32_t kFitVersion = 1;  // the newest known version

// Header of a fitted model: its source and each expert's width.
struct FitHeader {
  std::string source_name;
  uint64_t source_fingerprint = 0;
  std::optional<uint64_t> source_weights = {};  // model/weights_id.h; nullopt: an older file
  std::string widths;                           // [layer with experts][expert]: kHigh or kLow

  static constexpr char kHigh = '0';
  static constexpr char kLow = '1';
};

// nullopt: an ordinary model. kUnsupported for a newer version; kInvalidFile for keys that are
// missing or do not fit the model's layers and experts.
Result<std::optional<FitHeader>> ReadFitHeader(const GgufFile& file, const ModelSpec& spec);

// Like FindExpertTensors(), for a fitted model. A width that no expert of the layer has needs no
// tensor.
Result<std::vector<ExpertTensor>> FindFittedTensors(const GgufFile& file, const ModelSpec& spec,
                                                    uint32_t layer, const FitHeader& fit);

// kInvalidRequest if the model is a fitted one: `what` needs experts that have one width. `path` is
// the model's.
Status CheckIsNotFitted(const std::optional<FitHeader>& fit, const std::string& path,
                        std::string_view what);

}  // namespace moestro
