// SPDX-License-Identifier: MIT
// Metadata of indexers: attention.indexer.*.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "core/model_spec.h"
#include "model/file_checks.h"

namespace moestro {

// All fail with kInvalidFile or kUnsupported, and the key in the message.

// Heads, their width, and how many positions or blocks are chosen.
Result<IndexerSpec> ReadIndexerSizes(const MetaKeys& keys);
// Whether `n_turned` values of an indexer's key can be turned.
Status CheckIndexerKey(const MetaKeys& keys, const IndexerSpec& indexer, uint32_t n_turned);

// Each gives indexers of blocks of positions to layers of a specification that has all else.

// Blocks with keys, in each layer with attention: attention.compress_ratios.
Status ReadMeanBlocks(const MetaKeys& keys, ModelSpec& spec);
// Blocks that each head chooses on its own, in each layer with experts:
// attention.indexer.block_size and local_blocks.
Status ReadBlocksOfHeads(const MetaKeys& keys, ModelSpec& spec);

}  // namespace moestro
