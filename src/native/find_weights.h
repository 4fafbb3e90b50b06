// SPDX-License-Identifier: MIT
// Finds the weights' number of a model (model/weights_id.h): kept from an earlier start, or read
// from the file.
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

// The weights' numbers that are kept when an engine restarts.
struct KnownWeights {
  std::optional<uint64_t> id = {};         // nullopt: not known yet, or not needed
  std::optional<uint64_t> dense_sum = {};  // the part of the number that dense tensors give
};

// The number that is kept for these files; nullopt: no number is kept. Reads no weight.
std::optional<uint64_t> KnownWeightsId(const ModelFile& model, const std::string& folder);

// The number of the weights: the one that is kept for these files, else from reads of a sample of
// the experts and of all dense tensors, these unless `dense` is known. `dense` is the sum of
// DenseSum() over dense tensors. The number is kept in `folder` (learned/kept_facts.h); empty:
// not kept. Memory: 33 MiB while dense tensors are read, else 256 KiB. kIo; kInvalidFile: a file
// has changed since it was opened.
Result<uint64_t> FindWeightsId(const ModelFile& model, const std::string& folder,
                               std::optional<uint64_t> dense = {});
// The number of copies in a separate file, kept in `folder` or found by reading. Dense tensors of
// this file are never used.
Result<uint64_t> FindWeightsId(const LowCopies& low, const std::string& folder);

}  // namespace moestro
