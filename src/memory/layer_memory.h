// SPDX-License-Identifier: MIT
// Memory of a sequence in a model's layers. Each mixer declares its part here; plan, cache, files
// and reports sum these declarations and depend on no mixer. Plain values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "core/kv_cells.h"
#include "core/model_spec.h"
#include "memory/memory_use.h"

namespace moestro {

// A layer remembers cells, one for each position; or a state, one for each sequence; or cells and a
// state; or nothing.
struct LayerMemory {
  // Values that a cell has as key and as value; 0: the layer has no cells.
  uint32_t keys = 0;
  uint32_t values = 0;
  // Values of a head, which a type of keys and values stores in whole blocks.
  uint32_t head_keys = 0;
  uint32_t head_values = 0;
  // Pools of so many positions have cells, too, behind those of positions: a pool's cell has a key
  // of its own, and values are pools' alone. 0: no pools.
  uint32_t pool = 0;
  uint32_t window = 0;        // only the last so many positions are looked at; 0: all
  uint32_t state_values = 0;  // F32; 0: the layer has no state
  // The layer uses the cells of the layer before it. Keys and values of an encoder's layers are
  // needed only while the layer runs; a decoder's layer keeps the target's positions, and the layer
  // behind it, which attends to the source, keeps the source's positions in the same cells.
  bool shares_cells = false;

  static LayerMemory Of(const LayerSpec& layer);
  bool has_cells() const { return keys + values > 0; }
  // Cells of positions for which there is one of a pool. The cell of a pool follows from the cell
  // of its last position; of a pool of more than a block of cells, each block has one.
  uint32_t pool_stride() const { return std::min(pool, KvBlocks::kPositions); }
  bool operator==(const LayerMemory&) const = default;
};

// Numbers of cells: for layers that look at all positions, and for layers with a window.
struct CellCounts {
  uint32_t all = 0;
  uint32_t recent = 0;  // 0: layers with a window have cells of all positions

  bool is_recent(const LayerMemory& layer) const { return recent > 0 && layer.window > 0; }
  uint32_t of(const LayerMemory& layer) const { return is_recent(layer) ? recent : all; }
  uint32_t pools_of(const LayerMemory& layer) const {
    return layer.pool > 0 ? all / layer.pool_stride() : 0;
  }
  // Cells with a key, those of pools behind the others, and cells with a value.
  uint32_t keys_of(const LayerMemory& layer) const { return of(layer) + pools_of(layer); }
  uint32_t values_of(const LayerMemory& layer) const {
    return layer.pool > 0 ? pools_of(layer) : of(layer);
  }
};

struct MemoryShape {
  KvType type = KvType::kF16;  // of keys and values
  std::vector<LayerMemory> layers;

  // kInvalidRequest: the type's blocks do not divide a head.
  static Result<MemoryShape> Of(const ModelSpec& spec, KvType type);

  uint64_t key_bytes(uint32_t layer) const { return KvBytes(type, layers[layer].keys); }
  uint64_t value_bytes(uint32_t layer) const { return KvBytes(type, layers[layer].values); }
  // A position's cell in a layer.
  uint64_t cell_bytes(uint32_t layer) const {
    return key_bytes(layer) + (layers[layer].pool > 0 ? 0 : value_bytes(layer));
  }
  uint64_t position_bytes() const;  // a cell in all layers
  uint64_t recent_bytes() const;    // a cell in all layers with a window
  // The pools that `positions` fill, in all layers.
  uint64_t pool_bytes(uint32_t positions) const;
  uint32_t window() const;        // the largest; 0: no layer has one
  uint64_t state_values() const;  // of one state in all layers
  uint64_t state_bytes() const { return state_values() * sizeof(float); }
  bool has_states() const { return state_values() > 0; }
};

}  // namespace moestro
