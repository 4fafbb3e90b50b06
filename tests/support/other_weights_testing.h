// SPDX-License-Identifier: MIT
// A model with the header of another one and other weights: what a second training of the same base
// looks like.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "model/gguf_file.h"

namespace moestro {

// Copies `model`, a single GGUF file, to `path` and changes every fourth byte of the tensors that
// are chosen by name, by one bit. No weight becomes infinite or no number.
void WriteOtherWeights(const std::string& model, const std::string& path,
                       const std::function<bool(std::string_view tensor)>& is_chosen);

// Changes the values of all tensors of floats whose names end so, in the file. REQUIRES: a single
// file has such a tensor, and all of them are F32.
void ChangeFloats(
    const std::string& model, std::string_view suffix,
    const std::function<void(const TensorInfo& tensor, std::span<float> values)>& change);

}  // namespace moestro
