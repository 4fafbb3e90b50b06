// SPDX-License-Identifier: MIT
// The values that layers remember: keys and values in cells, and states.
//
// Thread rule: the engine thread; threads of the team may read while a graph runs.
#pragma once

#include <ggml-backend.h>
#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "compute/backend_buffer.h"
#include "core/kv_cells.h"
#include "memory/layer_memory.h"
#include "memory/memory_use.h"

namespace moestro {

// Keys and values of every layer that has cells, all of one type, for all sequences. A cell holds
// one position of one sequence in each of these layers, as wide as the layer declares. Sequences
// find their cells through memory/memory_use.h, and through memory/recent_cells.h for layers with a
// window. A layer's keys are one matrix with a row for each cell, and so are the values: ggml
// writes rows by index, on any device. The cache lies in memory or where the graphs run.

class KvCache {
 public:
  // kNoMemory. On the device of `backend`; null: in memory. most: bytes of a buffer, at most, where
  // the parts of layers allow; nullopt: as many as the backend allows.
  static Result<KvCache> Allocate(const MemoryShape& shape, const CellCounts& cells,
                                  ggml_backend_t backend = nullptr,
                                  std::optional<uint64_t> most = std::nullopt);
  static uint64_t BytesFor(const MemoryShape& shape, const CellCounts& cells,
                           ggml_backend_t backend = nullptr);
  static ggml_type TensorType(KvType type);

  // REQUIRES: in memory.
  struct Layer {
    std::byte* k = nullptr;  // [cell][values of a key]
    std::byte* v = nullptr;  // [cell][values of a value]
  };
  Layer layer(uint32_t layer) const;

  // Keys or values of neighbouring cells, in memory or on a device: as many cells as the bytes
  // hold. kDevice.
  enum class KvTensor : uint8_t { kKeys, kValues };
  size_t cell_bytes(uint32_t layer, KvTensor part) const {
    return part == KvTensor::kKeys ? shape_.key_bytes(layer) : shape_.value_bytes(layer);
  }
  Status Read(uint32_t layer, KvTensor part, uint32_t first_cell, std::span<std::byte> to) const;
  Status Write(uint32_t layer, KvTensor part, uint32_t first_cell,
               std::span<const std::byte> from) const;
  KvType type() const { return shape_.type; }
  const MemoryShape& shape() const { return shape_; }
  uint32_t layers() const { return static_cast<uint32_t>(shape_.layers.size()); }
  const CellCounts& cells() const { return cells_; }
  uint32_t cells_of(uint32_t layer) const { return cells_.of(shape_.layers[layer]); }
  // The cell of the pool whose last position lies in `cell` of the cells for all positions: the
  // number of its key or of its value. REQUIRES: the layer has pools.
  uint32_t pool_cell(uint32_t layer, KvTensor part, uint32_t cell) const {
    return (part == KvTensor::kKeys ? cells_of(layer) : 0) +
           cell / shape_.layers[layer].pool_stride();
  }
  // Whether a layer has cells of the last positions alone.
  bool is_recent(uint32_t layer) const { return cells_.is_recent(shape_.layers[layer]); }

  // A layer's keys and values as tensors of a graph: [values of a key or of a value, cells],
  // cells of pools included.
  ggml_tensor* K(ggml_context* ctx, uint32_t layer) const;
  ggml_tensor* V(ggml_context* ctx, uint32_t layer) const;

 private:
  struct Location {
    size_t buffer = 0;
    uint64_t offset = 0;
  };
  struct Layout {
    std::vector<uint64_t> sizes = {};      // [buffer]
    std::vector<Location> locations = {};  // [layer][keys, values]
  };
  static Layout LayOut(const MemoryShape& shape, const CellCounts& cells, ggml_backend_t backend,
                       uint64_t most);
  const Location& LocationOf(uint32_t layer, KvTensor part) const {
    return locations_[2 * layer + (part == KvTensor::kKeys ? 0 : 1)];
  }
  ggml_tensor* Part(ggml_context* ctx, uint32_t layer, KvTensor part, uint32_t width,
                    uint32_t cells) const;

  std::vector<BackendBuffer> buffers_;
  MemoryShape shape_;
  CellCounts cells_;
  std::vector<Location> locations_;  // [layer][keys, values]
};

// Converts values to the form of cells, and back. REQUIRES: whole blocks, and as much room.
void ToCells(KvType type, std::span<const float> values, std::span<std::byte> cells);
void FromCells(KvType type, std::span<const std::byte> cells, std::span<float> values);

// The values of states, in memory; memory/memory_use.h keeps track of the places in use.
//
// Thread rule: the engine thread; threads of the team may read and write while a graph runs.

class StateStore {
 public:
  // kNoMemory.
  static Result<StateStore> Allocate(const MemoryShape& shape, uint32_t n_slots);
  static uint64_t BytesFor(const MemoryShape& shape, uint32_t n_slots) {
    return n_slots * shape.state_bytes();
  }

  // A layer's values in a place; empty: the layer has no state.
  std::span<float> state(StateSlot slot, uint32_t layer) const;
  // The values of all layers in a place, layer by layer.
  std::span<float> all(StateSlot slot) const;

 private:
  BackendBuffer buffer_;
  uint64_t slot_values_ = 0;
  std::vector<uint64_t> begins_;  // [layer], and the end
};

}  // namespace moestro
