// SPDX-License-Identifier: MIT
// Files of `eval --shard`, and the figures of all shards together. docs/shards.md describes the
// bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"
#include "offline/eval/eval_stats.h"
#include "offline/shard/shard_file.h"

namespace moestro {

std::string EncodeSums(const EvalSums& sums);

struct MergedEval {
  EvalFigures figures = {};
  uint64_t windows = 0;
};
// Returns the figures of the run over the whole text, to the bit. Errors: kInvalidFile, kIo.
// REQUIRES: the shards are those of FindShards(), of eval.
Result<MergedEval> MergeEval(std::span<const FoundShard> shards);

}  // namespace moestro
