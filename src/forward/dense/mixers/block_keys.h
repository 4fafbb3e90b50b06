// SPDX-License-Identifier: MIT
// An indexer of attention with keys and values of heads, as nodes of a graph: it chooses blocks of
// positions by a key of each, which is the mean of its positions' keys, normed and turned by the
// first position of the block; or by the keys of its positions, each normed and turned by its own
// (PoolScore::kMeanKeys, kBestPosition).
//
// Thread rule: functions and the graph on the engine thread; nodes run on all threads of the team.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "compute/backend_buffer.h"
#include "core/model_spec.h"
#include "forward/dense/attended_cells.h"
#include "forward/dense/blocks.h"
#include "forward/dense/mixers/mixer.h"
#include "forward/dense/mixers/position_indexer.h"

namespace moestro {

// A cell has the indexer's key behind the keys of heads: its position's or, where blocks have keys
// and the position is the last one of a block, the block's. Earlier positions of a block keep
// theirs: a sequence may go back into the block.
class BlockKeys {
 public:
  // REQUIRES: spec.indexer is set; MixerParts::chosen is not null. kNoMemory.
  static Result<std::unique_ptr<BlockKeys>> Create(const MixerParts& parts,
                                                   const AttentionSpec& spec);
  uint64_t bytes() const { return positions_.size(); }
  uint64_t thread_bytes() const { return indexer_ ? indexer_->thread_bytes() : 0; }

  // Sets the positions of a step's rows.
  void SetPositions(std::span<const int32_t> positions);
  // Adds nodes: x [n_embd, rows] -> keys in the rows' cells, and the choice of each row.
  // cells: [n_embd_k + head_dim, cells], the layer's keys.
  void Build(const LayerTensors& w, const MixerGraph& in, const NormedRows& x, ggml_tensor* cells);
  // Sets the rows of the next run. Gives the cells that each row attends to, [row][choice].
  std::span<const RowCells> Bind(std::byte* cells, const MixerRows& rows);

 private:
  BlockKeys(const MixerParts& parts, const AttentionSpec& spec);
  const IndexerSpec& indexer() const { return *spec_.indexer; }
  bool has_means() const { return indexer().score == PoolScore::kMeanKeys; }
  void StoreMeans(const LayerTensors& w, const MixerGraph& in, ggml_tensor* keys,
                  ggml_tensor* place);
  ggml_tensor* Turn(ggml_context* ctx, ggml_tensor* heads, ggml_tensor* positions) const;
  ggml_tensor* TurnedKeys(ggml_context* ctx, const LayerTensors& w, ggml_tensor* keys,
                          ggml_tensor* positions) const;
  ggml_tensor* Means(ggml_context* ctx, ggml_tensor* keys);
  ggml_tensor* Stored(ggml_context* ctx, ggml_tensor* keys, ggml_tensor* of_blocks);
  // Whether the row's position is the last one of a block.
  bool ends_block(const RowCells& row) const { return row.n_positions % indexer().n_pool == 0; }
  void Mean(const RowCells& row, float* to) const;

  AttentionSpec spec_;
  float rms_eps_;
  KvType kv_type_;
  uint64_t cell_bytes_;  // of a cell's keys
  uint64_t skip_bytes_;  // of heads' keys, before the indexer's
  AttentionKernel kernel_ = AttentionKernel::ForThisMachine();
  ChosenPositions* chosen_;
  std::unique_ptr<PositionIndexer> indexer_;  // null: no text is long enough
  BackendBuffer positions_;  // I32 [row]: of the first position of the row's block, for means
  // Members that Bind() sets.
  std::byte* cells_ = nullptr;
  std::span<const RowCells> visible_;
};

}  // namespace moestro
