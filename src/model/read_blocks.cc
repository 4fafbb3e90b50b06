// SPDX-License-Identifier: MIT
#include "model/read_blocks.h"

#include <algorithm>
#include <string_view>
#include <variant>
#include <vector>

namespace moestro {

Result<IndexerSpec> ReadIndexerSizes(const MetaKeys& keys) {
  IndexerSpec spec;
  TRY(spec.n_head, keys.Count("attention.indexer.head_count", {1, MetaKeys::kMaxHeads}));
  TRY(spec.head_dim, keys.Count("attention.indexer.key_length", {1, MetaKeys::kMaxHeadDim}));
  TRY(spec.top_k, keys.Count("attention.indexer.top_k", {1, MetaKeys::kMaxContext}));
  return spec;
}

Status CheckIndexerKey(const MetaKeys& keys, const IndexerSpec& indexer, uint32_t n_turned) {
  if (indexer.head_dim >= n_turned) return {};
  return Fail(Errc::kInvalidFile, "{}: {} is {}, expected at least {} ({})", keys.path(),
              keys.Full("attention.indexer.key_length"), indexer.head_dim, n_turned,
              keys.Full("rope.dimension_count"));
}

Status ReadMeanBlocks(const MetaKeys& keys, ModelSpec& spec) {
  constexpr std::string_view kRatios = "attention.compress_ratios";
  TRY(IndexerSpec blocks, ReadIndexerSizes(keys));
  blocks.score = PoolScore::kMeanKeys;
  std::vector<uint32_t> ratios(spec.n_layer(), 0);
  if (keys.Has(kRatios)) {
    TRY(ratios, keys.Counts(kRatios, {0, MetaKeys::kMaxContext},
                            spec.n_layer() + spec.n_next_token_layers, spec.n_layer()));
  }
  uint32_t block = 0;
  for (uint32_t l = 0; l < spec.n_layer(); ++l) {
    auto* attention = std::get_if<AttentionSpec>(&spec.layers[l].mixer);
    if (attention == nullptr) continue;
    attention->indexer = blocks;
    attention->indexer->n_pool = std::max(ratios[l], 1U);
    attention->indexer->is_idle = ratios[l] == 0;
    if (ratios[l] == 0) continue;
    if (ratios[l] == 1 || blocks.top_k % ratios[l] != 0 || (block != 0 && ratios[l] != block)) {
      return Fail(Errc::kInvalidFile,
                  "{}: {} is {} in layer {}: expected one number above 1 that divides {} ({})",
                  keys.path(), keys.Full(kRatios), ratios[l], l, blocks.top_k,
                  keys.Full("attention.indexer.top_k"));
    }
    block = ratios[l];
    if (attention->rope) TRY_STATUS(CheckIndexerKey(keys, blocks, attention->rope->n_dims));
  }
  return {};
}

namespace {

// The sizes of blocks; top_k is of blocks in files.
Result<IndexerSpec> ReadSizesOfHeads(const MetaKeys& keys) {
  constexpr std::string_view kLast = "attention.indexer.local_blocks";
  constexpr std::string_view kTopK = "attention.indexer.top_k";
  constexpr uint64_t kMost = MetaKeys::kMaxContext;
  TRY(IndexerSpec blocks, ReadIndexerSizes(keys));
  blocks.score = PoolScore::kBestPosition;
  TRY(blocks.n_pool, keys.Count("attention.indexer.block_size", {1, kMost}));
  TRY(blocks.n_last_pools, keys.Count(kLast, {0, kMost}));
  if (blocks.n_last_pools == 0) {
    return Fail(Errc::kUnsupported,
                "{}: {} is 0: rows that do not attend to their own position are not supported",
                keys.path(), keys.Full(kLast));
  }
  if (blocks.n_last_pools > blocks.top_k) {
    return Fail(Errc::kInvalidFile, "{}: {} is {}, expected at most {} ({})", keys.path(),
                keys.Full(kLast), blocks.n_last_pools, blocks.top_k, keys.Full(kTopK));
  }
  TRY(blocks.top_k, keys.Count(kTopK, {1, kMost / blocks.n_pool}));
  blocks.top_k *= blocks.n_pool;
  return blocks;
}

}  // namespace

Status ReadBlocksOfHeads(const MetaKeys& keys, ModelSpec& spec) {
  TRY(const IndexerSpec blocks, ReadSizesOfHeads(keys));
  for (LayerSpec& layer : spec.layers) {
    auto* attention = std::get_if<AttentionSpec>(&layer.mixer);
    if (attention == nullptr || !layer.feed_forward.has_experts()) continue;
    if (attention->n_head_kv != blocks.n_head) {
      return Fail(Errc::kInvalidFile, "{}: {} is {}, expected {} ({})", keys.path(),
                  keys.Full("attention.indexer.head_count"), blocks.n_head, attention->n_head_kv,
                  keys.Full("attention.head_count_kv"));
    }
    if (attention->rope) TRY_STATUS(CheckIndexerKey(keys, blocks, attention->rope->n_dims));
    attention->indexer = blocks;
  }
  return {};
}

}  // namespace moestro
