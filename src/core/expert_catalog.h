// SPDX-License-Identifier: MIT
// Catalog of every copy of every expert: its place on disk, its form, and the pool of slots that
// holds it in memory. Kernels go by form, slots by pool; both belong to a copy, not to a layer.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "core/extent.h"
#include "core/ids.h"

namespace moestro {

// Pool of slots of each expert, and the size of a pool's experts: the part of a catalog
// (expert_catalog.h) that code without reads needs.

struct ExpertPools {
  struct Pool {
    std::array<uint64_t, kMatrices> matrix_bytes{};  // of one expert's reads
    uint64_t slots = 0;  // slots of the pool in the engine that recorded; 0: unknown
    bool operator==(const Pool&) const = default;
    uint64_t expert_bytes() const { return matrix_bytes[0] + matrix_bytes[1] + matrix_bytes[2]; }
  };
  std::vector<Pool> pools = {};        // of the model's own copies; empty: unknown
  std::vector<uint16_t> pool_of = {};  // [layer][expert]; empty: all go to the first

  bool is_known() const { return !pools.empty(); }
  // REQUIRES: is_known(), or the caller takes all experts for one pool; `experts` is the number of
  // experts of a layer.
  uint32_t of(ExpertKey key, uint32_t experts) const {
    if (pool_of.empty()) return 0;
    return pool_of[size_t{key.layer.value} * experts + key.expert.value];
  }
  bool operator==(const ExpertPools&) const = default;
};

// Types and sizes of a copy's matrices, as kernels need them. Types are ggml's.
struct CopyForm {
  static constexpr int kNoMatrix = -1;
  std::array<int, kMatrices> types{};  // kNoMatrix: experts of this form lack the matrix
  uint32_t n_embd = 0;                 // inputs of gate and up, outputs of down
  uint32_t n_ff = 0;
  bool has(size_t matrix) const { return types[matrix] != kNoMatrix; }
  bool operator==(const CopyForm&) const = default;
};

// Copies whose slices take the same bytes can use each other's slots; low copies have slots of
// their own.
struct PoolShape {
  std::array<uint64_t, kMatrices> slice_bytes{};
  bool is_low = false;
  uint64_t experts = 0;  // copies of all layers that use this pool

  uint64_t expert_bytes() const { return slice_bytes[0] + slice_bytes[1] + slice_bytes[2]; }
  // Memory of one slot when reads cover whole blocks.
  uint64_t slot_bytes(uint64_t block) const {
    uint64_t bytes = 0;
    for (const uint64_t slice : slice_bytes) bytes += WindowCapacity(slice, block);
    return bytes;
  }
};

struct ExpertCopy {
  uint32_t form = 0;  // index into forms
  uint32_t pool = 0;  // index into pools
  // Extent that is read for each matrix. A length of 0: no read, because the expert lacks the
  // matrix or another slice holds it.
  std::array<Extent, kMatrices> slices;
  bool is_fused = false;  // gate's slice holds the gate matrix and, behind it, the up matrix

  // Index of the slice that holds a matrix.
  size_t slice_of(Matrix m) const {
    return static_cast<size_t>(is_fused && m == Matrix::kUp ? Matrix::kGate : m);
  }
  // Offset of a matrix in its slice.
  uint64_t offset_in_slice(Matrix m) const {
    return is_fused && m == Matrix::kUp ? slices[slice_of(m)].length / 2 : 0;
  }
  // Extent of a matrix in its file; a length of 0: the expert lacks the matrix.
  Extent matrix(Matrix m) const {
    Extent where = slices[slice_of(m)];
    where.offset += offset_in_slice(m);
    if (is_fused && m != Matrix::kDown) where.length /= 2;
    return where;
  }
};

struct ExpertCatalog {
  struct Layer {
    std::vector<std::vector<ExpertCopy>> experts;  // [expert][copy]; empty: a layer without experts
    std::vector<uint32_t> pools;                   // pools of its copies, each once
  };
  std::vector<Layer> layers;
  uint32_t n_encoder = 0;  // see MoeShape
  std::vector<CopyForm> forms;
  std::vector<PoolShape> pools;

  // REQUIRES: the catalog has the copy.
  const ExpertCopy& copy(ExpertKey key) const {
    const std::vector<ExpertCopy>& copies = layers[key.layer.value].experts[key.expert.value];
    CHECK(key.copy < copies.size());
    return copies[key.copy];
  }

  // Adds a copy of an expert; its form and pool are found among the known ones or added. is_fused:
  // see ExpertCopy.
  void Add(ExpertLayerId layer, ExpertId expert, const CopyForm& form,
           const std::array<Extent, kMatrices>& slices, bool is_fused = false) {
    const auto form_at = FindOrAdd(forms, [&](const CopyForm& f) { return f == form; }, form);
    if (layers.size() <= layer.value) layers.resize(layer.value + size_t{1});
    Layer& entry = layers[layer.value];
    if (entry.experts.size() <= expert.value) entry.experts.resize(expert.value + size_t{1});
    PoolShape shape{.is_low = !entry.experts[expert.value].empty()};
    for (size_t m = 0; m < kMatrices; ++m) shape.slice_bytes[m] = slices[m].length;
    const auto same = [&](const PoolShape& p) {
      return p.slice_bytes == shape.slice_bytes && p.is_low == shape.is_low;
    };
    const auto pool = FindOrAdd(pools, same, shape);
    ++pools[pool].experts;
    entry.experts[expert.value].push_back(
        {.form = form_at, .pool = pool, .slices = slices, .is_fused = is_fused});
    if (!std::ranges::contains(entry.pools, pool)) entry.pools.push_back(pool);
  }

  // Bytes of the model's own copies; low copies are left out.
  uint64_t total_bytes() const {
    uint64_t bytes = 0;
    for (const PoolShape& pool : pools)
      bytes += pool.is_low ? 0 : pool.experts * pool.expert_bytes();
    return bytes;
  }
  // The number of experts' copies, [form].
  std::vector<uint64_t> copies_by_form() const {
    std::vector<uint64_t> n(forms.size());
    for (const Layer& layer : layers) {
      for (const std::vector<ExpertCopy>& copies : layer.experts) {
        for (const ExpertCopy& copy : copies) ++n[copy.form];
      }
    }
    return n;
  }
  // Some expert with a copy of the form; nullopt: no expert has one.
  std::optional<ExpertKey> any_of(uint32_t form) const {
    for (uint16_t l = 0; l < layers.size(); ++l) {
      for (uint16_t e = 0; e < layers[l].experts.size(); ++e) {
        for (CopyId c = 0; c < layers[l].experts[e].size(); ++c) {
          if (layers[l].experts[e][c].form == form) return ExpertKey{{l}, {e}, c};
        }
      }
    }
    return std::nullopt;
  }
  bool has_low() const { return std::ranges::contains(pools, true, &PoolShape::is_low); }

 private:
  template <class T, class Same>
  static uint32_t FindOrAdd(std::vector<T>& list, Same same, const T& value) {
    const auto found = std::ranges::find_if(list, same);
    const auto at = static_cast<uint32_t>(found - list.begin());
    if (found == list.end()) list.push_back(value);
    return at;
  }
};

}  // namespace moestro
