// SPDX-License-Identifier: MIT
// Files of `imatrix --shard`, and the sums of all shards. docs/shards.md describes the bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/output_path.h"
#include "base/result.h"
#include "offline/record/imatrix_file.h"
#include "offline/record/imatrix_sums.h"
#include "offline/shard/shard_file.h"

namespace moestro {

// Sums of a run over texts, or over a shard of the texts.
struct ImatrixRun {
  ImatrixInfo info = {};  // of the whole run
  std::vector<ImatrixPlace> places = {};
  uint64_t tokens = 0;
  ImatrixSums sums;
};

// Errors: kIo.
Status WriteImatrixShard(const OutputPath& path, const ShardInfo& shard, const ImatrixRun& run);

// Adds up the shards. Counts equal those of the run over the whole texts, and sums do but for their
// rounding to F64. Errors: kInvalidFile, kIo; kInvalidRequest: the shards are of different tensors.
// REQUIRES: the shards are those of FindShards(), of imatrix.
Result<ImatrixRun> MergeImatrix(std::span<const FoundShard> shards);

}  // namespace moestro
