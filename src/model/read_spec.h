// SPDX-License-Identifier: MIT
// Metadata -> ModelSpec by the rules of the model's family, every value checked and named in the
// error.
#pragma once

#include <span>

#include "base/result.h"
#include "core/model_spec.h"
#include "model/families/families.h"
#include "model/gguf_file.h"

namespace moestro {

// Fails with kUnsupported for an unknown architecture (lists the supported ones), a dense model or
// a feature that the family lacks, kInvalidFile for missing, contradictory or absurd values.
// phimoe's long and short rope factors are chosen later, by the context in use: long ones above
// rope.original_context. ReadWeights() checks every dimension again against the tensors.
Result<ModelSpec> ReadSpec(const GgufFile& file, std::span<const Family> families = Families());

}  // namespace moestro
