// SPDX-License-Identifier: MIT
// Metadata of n-grams.
#pragma once

#include "base/result.h"
#include "core/model_spec.h"
#include "model/file_checks.h"

namespace moestro {

// ple.*; a file without ple.layers has no n-grams. Fills its part of a specification whose layers
// are read. kInvalidFile, kUnsupported, with the key in the message. REQUIRES: streams and the
// vocabulary are read.
Status ReadNgrams(const MetaKeys& keys, ModelSpec& spec);

}  // namespace moestro
