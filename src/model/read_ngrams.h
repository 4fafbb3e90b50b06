// SPDX-License-Identifier: MIT
// Metadata of n-grams and of indexers of blocks.
#pragma once

#include "base/result.h"
#include "core/model_spec.h"
#include "model/file_checks.h"

namespace moestro {

// Each fills its part of a specification whose layers are read. kInvalidFile, kUnsupported, with
// the key in the message.

// ple.*; a file without ple.layers has no n-grams. REQUIRES: streams and the vocabulary are read.
Status ReadNgrams(const MetaKeys& keys, ModelSpec& spec);
// attention.indexer.* and attention.compress_ratios: blocks of positions in each layer with
// attention.
Status ReadBlockIndexers(const MetaKeys& keys, ModelSpec& spec);

}  // namespace moestro
