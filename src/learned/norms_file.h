// SPDX-License-Identifier: MIT
// Mean lengths of experts' outputs as a file beside their model; docs/norms-format.md describes
// every byte. Thread rule: none, calls share nothing but the file system.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/output_path.h"
#include "base/result.h"
#include "core/run_identity.h"
#include "decide/layer/importance/importance.h"

namespace moestro {

struct NormsFile {
  ModelId model = {};   // has the shape of the norms
  uint64_t tokens = 0;  // tokens that were measured
  ExpertNorms norms;
};

// `path` holds the old file or the whole new one, never a part. kIo, naming the file.
Status WriteNorms(const OutputPath& path, const NormsFile& norms);

// Trusts nothing in the file. kIo: cannot be read; kUnsupported: a newer format; kInvalidFile: no
// norms, cut short, damaged, or a value that is not a length. The message names the file.
Result<NormsFile> ReadNorms(const std::string& path);

// Reads norms for a model. kInvalidRequest, naming both models, if the norms were measured on
// another one; other errors: those of ReadNorms().
Result<std::shared_ptr<const ExpertNorms>> ReadNormsFor(const ModelId& model,
                                                        const std::string& path);

}  // namespace moestro
