// SPDX-License-Identifier: MIT
// Types of weight matrices by name, and the types that fit a row. Pure functions.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace moestro {

std::string Uppercase(std::string_view text);  // ASCII letters

// A type by ggml's name, in any case: "q4_K". Fails with kUsage; the message lists the names.
Result<ggml_type> FindWeightType(std::string_view name);

// `type`, or where a row of `row` values is no whole number of its blocks the next type that fits,
// as llama-quantize chooses it.
ggml_type FittingType(ggml_type type, int64_t row);

}  // namespace moestro
