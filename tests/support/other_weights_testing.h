// SPDX-License-Identifier: MIT
// A model with the header of another one and other weights: what a second training of the same base
// looks like.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace moestro {

// Copies `model`, a single GGUF file, to `path` and changes every fourth byte of the tensors that
// are chosen by name, by one bit. No weight becomes infinite or no number.
void WriteOtherWeights(const std::string& model, const std::string& path,
                       const std::function<bool(std::string_view tensor)>& is_chosen);

}  // namespace moestro
