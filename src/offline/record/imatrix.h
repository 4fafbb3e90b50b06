// SPDX-License-Identifier: MIT
// Importances of the routed experts' matrices, from their inputs while a model reads texts
// (imatrix_sums.h), as a file for quantisers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/output_file.h"
#include "base/result.h"
#include "engine/engine.h"
#include "offline/shard_file.h"

namespace moestro {

struct ImatrixOptions {
  std::string model;
  EngineOptions engine;
  std::vector<std::string> texts;  // paths
  uint32_t tokens = 0;             // at most, of each text; 0: all
  OutputPath path;                 // of the file to write
  // Evaluates the shard's windows alone; MergeImatrices() adds up all shards.
  std::optional<Shard> shard = {};
  Progress progress = {};  // may be empty
};

struct ImatrixReport {
  std::optional<ShardInfo> shard = {};  // the shard; all other members are then empty
  uint64_t tokens = 0;
  uint32_t experts = 0;                  // of a layer
  std::vector<uint32_t> unvisited = {};  // [layer with experts]: experts that no token came to
};

// Runs the model on the texts, in sequences of at most a context, and writes the importances of its
// experts in llama.cpp's GGUF format. Errors: those of the engine, of the texts and of
// WriteImatrix(); kInvalidRequest without a token; kInvalidFile when the model computes NaN or
// infinity.
Result<ImatrixReport> MakeImatrix(const ImatrixOptions& options);

// Writes the importances of all shards of a run. Errors: those of MergeImatrix() and
// WriteImatrix(); kInvalidFile as MakeImatrix().
Result<ImatrixReport> MergeImatrices(std::span<const FoundShard> shards, const OutputPath& path);

}  // namespace moestro
