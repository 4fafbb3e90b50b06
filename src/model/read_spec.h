// SPDX-License-Identifier: MIT
// Metadata -> ModelSpec, every value checked and named in the error.
#pragma once

#include "base/result.h"
#include "core/model_spec.h"
#include "model/gguf_file.h"

namespace moestro {

// Fails with kUnsupported for an unknown architecture (lists the supported ones) or a dense model,
// kInvalidFile for missing, contradictory or absurd values. `n_ctx` chooses between phimoe's long
// and short rope factors (0: the training context).
Result<ModelSpec> ReadSpec(const GgufFile& file);

}  // namespace moestro
