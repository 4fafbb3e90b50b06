// SPDX-License-Identifier: MIT
// Keys and values of every layer, all of one type, for all sequences. A cell holds one position of
// one sequence in every layer; memory/kv_blocks.h says which. A layer's keys are one matrix with a
// row for each cell, and so are its values: ggml writes them by index, on any device. In memory, or
// where the graphs run.
//
// Thread rule: the engine thread; threads of the team may read while a graph runs.
#pragma once

#include <ggml-backend.h>
#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "core/kv_type.h"
#include "core/model_spec.h"
#include "device/backend_buffer.h"

namespace moestro {

class KvCache {
 public:
  // kNoMemory. On the device of `backend`; null: in memory. REQUIRES: CheckKvType(type, spec).
  static Result<KvCache> Allocate(const ModelSpec& spec, KvType type, uint32_t n_cells,
                                  ggml_backend_t backend = nullptr);
  static uint64_t BytesFor(const ModelSpec& spec, KvType type, uint32_t n_cells,
                           ggml_backend_t backend = nullptr);
  static ggml_type TensorType(KvType type);

  // REQUIRES: in memory.
  struct Layer {
    std::byte* k = nullptr;  // [cell][n_embd_k]
    std::byte* v = nullptr;  // [cell][n_embd_v]
  };
  Layer layer(uint32_t layer) const;

  // Keys or values of neighbouring cells, wherever they are: as many as there are bytes for.
  // kDevice.
  enum class Part : uint8_t { kKeys, kValues };
  size_t cell_bytes(Part part) const {
    return KvBytes(type_, part == Part::kKeys ? n_embd_k_ : n_embd_v_);
  }
  Status Read(uint32_t layer, Part part, uint32_t first_cell, std::span<std::byte> to) const;
  Status Write(uint32_t layer, Part part, uint32_t first_cell,
               std::span<const std::byte> from) const;
  KvType type() const { return type_; }
  uint32_t layers() const { return n_layer_; }
  uint32_t cells() const { return n_cells_; }
  uint32_t n_embd_k() const { return n_embd_k_; }
  uint32_t n_embd_v() const { return n_embd_v_; }

  // The same as tensors of a graph: [n_embd_k or n_embd_v, cells].
  ggml_tensor* K(ggml_context* ctx, uint32_t layer) const;
  ggml_tensor* V(ggml_context* ctx, uint32_t layer) const;

 private:
  uint64_t OffsetOf(uint32_t layer, Part part) const {
    return layer * layer_stride_ + (part == Part::kKeys ? 0 : k_bytes_);
  }

  BackendBuffer buffer_;
  KvType type_ = KvType::kF16;
  uint32_t n_layer_ = 0;
  uint32_t n_cells_ = 0;
  uint32_t n_embd_k_ = 0;
  uint32_t n_embd_v_ = 0;
  uint64_t k_bytes_ = 0;  // of one layer, aligned
  uint64_t layer_stride_ = 0;
};

}  // namespace moestro
