// SPDX-License-Identifier: MIT
// A fitted model: each expert at one of two widths, as `moestro fit` chose it. GGUF has one type
// for a tensor, so a layer's experts lie in two tensors for each matrix, and a key maps each expert
// to its tensor (docs/fitted-format.md). Nothing in the file is trusted. Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/model_spec.h"
#include "model/expert_tensors.h"
#include "model/gguf_file.h"

namespace moestro {

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
