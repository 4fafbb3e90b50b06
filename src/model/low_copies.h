// SPDX-License-Identifier: MIT
// Copies of a model's routed experts at a lower type, in a file of their own: written by `moestro
// quantize` (docs/low-format.md), or any other GGUF of the same model. Nothing in the file is
// trusted; an accepted file has the model's own shapes.
//
// Immutable after OpenLowCopies(); any thread may read it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/expert_tensors.h"
#include "model/gguf_file.h"
#include "model/model_file.h"

namespace moestro {

// Keys by which a file of low copies records its source.
inline constexpr const char* kLowVersionKey = "moestro.low.version";  // u32
inline constexpr const char* kLowFingerprintKey = "moestro.low.source_fingerprint";
inline constexpr const char* kLowWeightsKey = "moestro.low.source_weights";
inline constexpr const char* kLowNameKey = "moestro.low.source_name";
inline constexpr const char* kLowTypesKey = "moestro.low.types";
inline constexpr const char* kLowImatrixKey = "moestro.low.imatrix";
inline constexpr uint32_t kLowVersion = 1;  // the newest known version

struct LowCopies {
  GgufFile gguf;  // the copies' own directory; Extent::file indexes gguf.paths(), not the model's
  // [layer with experts], in the order of the model's; none is empty. As in LayerWeights::experts.
  std::vector<LayerExperts> layers;
  bool names_source = false;  // the file has the fingerprint of its source
  // Number of the source's weights (model/weights_id.h); nullopt: the file lacks the key.
  std::optional<uint64_t> source_weights = {};

  uint64_t expert_bytes() const;  // of all layers and experts
};

// `path` as in GgufFile::Open(). Fails like GgufFile::Open(), and with kInvalidRequest, naming both
// sides and the remedy, for copies of another model: another architecture, other numbers of layers
// or experts, another width, or another fingerprint of the source (an ordinary GGUF has none: then
// shapes decide); kInvalidFile for a missing tensor or a wrong shape; kUnsupported for a newer
// version and for types that cannot be multiplied.
Result<LowCopies> OpenLowCopies(const std::string& path, const ModelFile& model);

// Completes the checks of OpenLowCopies(), once the number of the model's weights is computed.
// kInvalidRequest: the copies were made from other weights than the model's and, for a fitted
// model, than its source's. Copies without a number, or without a number to compare with, are
// accepted with a warning.
// REQUIRES: `low` was opened for this model.
Status CheckLowWeights(const LowCopies& low, const ModelFile& model, uint64_t weights);

}  // namespace moestro
