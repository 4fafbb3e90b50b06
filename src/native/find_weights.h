// SPDX-License-Identifier: MIT
// The weights' number of a model (model/weights_id.h): remembered from an earlier start, or from
// the file.
//
// Thread rule: none, calls share nothing but the file system.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "model/low_copies.h"
#include "model/model_file.h"

namespace moestro {

// What is known of the weights while engines come and go.
struct KnownWeights {
  std::optional<uint64_t> id = {};         // nullopt: not known yet, or not asked for
  std::optional<uint64_t> dense_sum = {};  // the dense tensors' part of it
};

// What is remembered of these files; nullopt: nothing. Reads no weight.
std::optional<uint64_t> KnownWeightsId(const ModelFile& model, const std::string& folder);

// The same, else read: the sample of the experts, and all dense tensors unless `dense`, the sum of
// DenseSum() over them, is known. Remembered in `folder` (learned/kept_weights.h; empty: nowhere).
// Memory: 33 MiB while dense tensors are read, else 256 KiB. kIo; kInvalidFile: a file has changed
// since it was opened.
Result<uint64_t> FindWeightsId(const ModelFile& model, const std::string& folder,
                               std::optional<uint64_t> dense = {});
// Of copies in a file of their own, whose dense tensors, if there are any, are never used.
Result<uint64_t> FindWeightsId(const LowCopies& low, const std::string& folder);

}  // namespace moestro
