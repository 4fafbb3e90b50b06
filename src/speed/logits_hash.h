// SPDX-License-Identifier: MIT
// A short name for the bits of logits.
#pragma once

#include <span>
#include <string>

namespace moestro {

// FNV-1a of the bits, as 16 hex digits: equal hashes mean bit-identical logits.
std::string HashLogits(std::span<const float> logits);

}  // namespace moestro
