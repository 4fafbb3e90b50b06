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
// what the family does not have, kInvalidFile for missing, contradictory or absurd values. Which of
// phimoe's long and short rope factors applies depends on the context in use, so it is chosen
// later: long ones above rope.original_context. Every dimension is checked again against the
// tensors by ReadWeights().
Result<ModelSpec> ReadSpec(const GgufFile& file, std::span<const Family> families = Families());

}  // namespace moestro
