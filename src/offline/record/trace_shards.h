// SPDX-License-Identifier: MIT
// Joins the traces of all shards. docs/shards.md describes the bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/output_path.h"
#include "base/result.h"
#include "offline/shard/shard_file.h"

namespace moestro {

// Writes the trace of the run over the whole text, to the byte, but for the numbers of slots, which
// are those of the first shard's engine. Returns the number of its tokens. Errors: kInvalidFile,
// kIo; kInvalidRequest: the engines recorded different things.
// REQUIRES: the shards are those of FindShards(), of trace.
Result<uint64_t> MergeTraces(std::span<const FoundShard> shards, const OutputPath& path);

}  // namespace moestro
