// SPDX-License-Identifier: MIT
// Attention of a tile of queries over one block of keys and values: the inner loops of
// forward/dense/attention.h, for the instruction sets that machines have.
//
// The running softmax: for each query the largest score so far, the sum of the weights 2^(score -
// largest), and the values summed with these weights, all in F32. A block whose scores exceed the
// largest scales the earlier sums down. Source: M. Milakov, N. Gimelshein, "Online normalizer
// calculation for softmax", 2018; T. Dao et al., "FlashAttention", 2022.
//
// A query's result depends on its own scores alone: not on the other queries of the tile, nor on
// their number. Kernels are pure functions; any thread may call them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/kv_cells.h"

namespace moestro {

// Keys of a block, by position within the block, that a query attends to. Other keys have no
// effect, whatever their bytes.
struct KeyRange {
  uint32_t begin = 0;
  uint32_t end = 0;
  bool is_empty() const { return begin >= end; }
  bool operator==(const KeyRange&) const = default;
};

struct AttentionKernel {
  static constexpr uint32_t kKeys = 64;      // keys of a block
  static constexpr uint32_t kMaxLanes = 16;  // lanes of any kernel, at most

  // Floats that are read and written for a key or a value of `dim` floats.
  uint32_t padded(uint32_t dim) const { return (dim + 2 * lanes - 1) / (2 * lanes) * (2 * lanes); }

  // Bytes to prefetch.
  struct Piece {
    const std::byte* at;
    size_t bytes;
  };
  // One tile against one block. All memory is aligned to 64 bytes; every matrix is row by row.
  struct Block {
    const float* queries;    // [n_queries][dim_k], times scale * log2(e)
    const KeyRange* ranges;  // [n_queries]
    uint32_t n_queries;
    uint32_t dim_k;
    uint32_t dim_v;       // padded
    const float* keys;    // in the order of `turn`
    const float* values;  // [kKeys][value_stride]
    size_t value_stride;
    // [n_queries]: numbers added to the scores of the block's kKeys keys, times log2(e), not
    // aligned; null: nothing is added.
    const float* const* added = nullptr;
    float* scores;   // scratch [n_queries][kKeys]
    float* largest;  // [n_queries], before the first block -infinity
    float* weights;  // [n_queries][kMaxLanes], before the first block 0; to be added up in the end
    float* sums;     // [n_queries][dim_v], before the first block 0
    // Prefetched between products: memory brings these bytes while the block is computed.
    std::span<const Piece> ahead;
  };
  void (*attend)(const Block& block) = nullptr;

  // n stored values, in whole blocks -> floats, as exactly as floats can be.
  using ToFloat = void (*)(const std::byte* from, float* to, size_t n);
  ToFloat from_f16 = nullptr;
  ToFloat from_q8 = nullptr;
  ToFloat from_f32 = nullptr;
  ToFloat to_float(KvType type) const {
    switch (type) {
      case KvType::kF16:
        return from_f16;
      case KvType::kQ8:
        return from_q8;
      case KvType::kF32:
        break;
    }
    return from_f32;
  }
  // Keys [kKeys][stride] -> the order in which `attend` reads them, kKeys * dim floats.
  void (*turn)(const float* keys, size_t stride, uint32_t dim, float* turned) = nullptr;

  uint32_t lanes = 0;
  std::string_view name;

  static AttentionKernel ForThisMachine();
  // All kernels that this machine runs, the fastest first; the last one runs everywhere.
  static std::vector<AttentionKernel> AllHere();
};

}  // namespace moestro
