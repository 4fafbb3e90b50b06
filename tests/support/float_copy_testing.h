// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace moestro {

// Writes a model of one file once more, beside it, with every tensor as F32: what its quantised
// weights mean. Stops the test program when that fails.
std::string WriteInFloats(const std::string& path);

}  // namespace moestro
