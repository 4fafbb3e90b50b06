// SPDX-License-Identifier: MIT
// Metadata -> ModelSpec, every value checked and named in the error.
#pragma once

#include "base/result.h"
#include "core/model_spec.h"
#include "model/gguf_file.h"

namespace moestro {

// Fails with kUnsupported for an unknown architecture (lists the supported ones) or a dense model,
// kInvalidFile for missing, contradictory or absurd values. Which of phimoe's long and short rope
// factors applies depends on the context in use, so it is chosen later: long ones above
// rope.original_context. Every dimension is checked again against the tensors by ReadWeights().
Result<ModelSpec> ReadSpec(const GgufFile& file);

}  // namespace moestro
