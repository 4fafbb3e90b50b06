// SPDX-License-Identifier: MIT
// Widths that a model's experts may have, and the distance of weights at two of them.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/model_file.h"
#include "offline/fit/write_fitted.h"

namespace moestro {

struct SizedWidth {
  Width width;         // nullopt: the source's own
  uint64_t bytes = 0;  // bytes of all experts at the width
};

// The source's own width and those of `types` that take less, largest first; where rows do not fit
// a type, the next one that does. kInvalidRequest when none takes less.
Result<std::vector<SizedWidth>> PlanWidths(const ModelFile& model,
                                           std::span<const ggml_type> types);

// For each expert ([layer][expert]): the length of the difference between its weights in two files,
// as a share of their length. Reads both files whole. Errors: those of reading.
Result<std::vector<double>> WidthErrors(const std::string& high, const std::string& low);

}  // namespace moestro
