// SPDX-License-Identifier: MIT
#include "memory/layer_values.h"

#include <ggml-backend.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "base/number.h"

namespace moestro {
namespace {

constexpr uint64_t kMatrixAlignment = 64;

// The most bytes of one buffer. Drivers of devices have a limit, often of a gibibyte.
uint64_t MostBytes(ggml_backend_t backend) {
  if (backend == nullptr) return std::numeric_limits<uint64_t>::max();
  return ggml_backend_buft_get_max_size(ggml_backend_get_default_buffer_type(backend));
}

}  // namespace

// Parts are laid out one behind the other, each whole in one buffer.
KvCache::Layout KvCache::LayOut(const MemoryShape& shape, const CellCounts& cells,
                                ggml_backend_t backend, uint64_t most) {
  const uint64_t alignment =
      backend == nullptr ? kMatrixAlignment : BackendBuffer::AlignmentOf(backend);
  Layout layout{.sizes = {0}};
  for (uint32_t l = 0; l < shape.layers.size(); ++l) {
    if (shape.layers[l].shares_cells) {
      layout.locations.append_range(
          std::array{layout.locations[2 * l - 2], layout.locations[2 * l - 1]});
      continue;
    }
    const LayerMemory& layer = shape.layers[l];
    for (const uint64_t bytes : {shape.key_bytes(l) * cells.keys_of(layer),
                                 shape.value_bytes(l) * cells.values_of(layer)}) {
      const uint64_t size = AlignUp(bytes, alignment);
      if (layout.sizes.back() > 0 && size > most - std::min(most, layout.sizes.back())) {
        layout.sizes.push_back(0);
      }
      layout.locations.push_back(
          {.buffer = layout.sizes.size() - 1, .offset = layout.sizes.back()});
      layout.sizes.back() += size;
    }
  }
  return layout;
}

uint64_t KvCache::BytesFor(const MemoryShape& shape, const CellCounts& cells,
                           ggml_backend_t backend) {
  const Layout layout = LayOut(shape, cells, backend, MostBytes(backend));
  return std::reduce(layout.sizes.begin(), layout.sizes.end());
}

ggml_type KvCache::TensorType(KvType type) {
  switch (type) {
    case KvType::kF16:
      return GGML_TYPE_F16;
    case KvType::kQ8:
      return GGML_TYPE_Q8_0;
    case KvType::kF32:
      break;
  }
  return GGML_TYPE_F32;
}

Result<KvCache> KvCache::Allocate(const MemoryShape& shape, const CellCounts& cells,
                                  ggml_backend_t backend, std::optional<uint64_t> most) {
  KvCache kv;
  kv.shape_ = shape;
  kv.cells_ = cells;
  Layout layout = LayOut(shape, cells, backend, most.value_or(MostBytes(backend)));
  kv.locations_ = std::move(layout.locations);
  for (const uint64_t size : layout.sizes) {
    TRY(BackendBuffer buffer, BackendBuffer::Where(backend, size));
    kv.buffers_.push_back(std::move(buffer));
  }
  return kv;
}

KvCache::Layer KvCache::layer(uint32_t layer) const {
  const auto begin_of = [&](KvTensor part) {
    const Location& at = LocationOf(layer, part);
    return buffers_[at.buffer].data() + at.offset;
  };
  return {.k = begin_of(KvTensor::kKeys), .v = begin_of(KvTensor::kValues)};
}

ggml_tensor* KvCache::Part(ggml_context* ctx, uint32_t layer, KvTensor part, uint32_t width,
                           uint32_t cells) const {
  ggml_tensor* its = ggml_new_tensor_2d(ctx, TensorType(type()), width, cells);
  const Location& at = LocationOf(layer, part);
  buffers_[at.buffer].Place(its, at.offset);
  return its;
}

ggml_tensor* KvCache::K(ggml_context* ctx, uint32_t layer) const {
  const LayerMemory& its = shape_.layers[layer];
  return Part(ctx, layer, KvTensor::kKeys, its.keys, cells_.keys_of(its));
}

ggml_tensor* KvCache::V(ggml_context* ctx, uint32_t layer) const {
  const LayerMemory& its = shape_.layers[layer];
  return Part(ctx, layer, KvTensor::kValues, its.values, cells_.values_of(its));
}

// ggml has no conversion of F32 to itself.
void ToCells(KvType type, std::span<const float> values, std::span<std::byte> cells) {
  if (type == KvType::kF32) {
    std::memcpy(cells.data(), values.data(), values.size_bytes());
    return;
  }
  ggml_get_type_traits(KvCache::TensorType(type))
      ->from_float_ref(values.data(), cells.data(), static_cast<int64_t>(values.size()));
}

void FromCells(KvType type, std::span<const std::byte> cells, std::span<float> values) {
  if (type == KvType::kF32) {
    std::memcpy(values.data(), cells.data(), values.size_bytes());
    return;
  }
  ggml_get_type_traits(KvCache::TensorType(type))
      ->to_float(cells.data(), values.data(), static_cast<int64_t>(values.size()));
}

Status KvCache::Read(uint32_t layer, KvTensor part, uint32_t first_cell,
                     std::span<std::byte> to) const {
  const Location& at = LocationOf(layer, part);
  return buffers_[at.buffer].Read(at.offset + first_cell * cell_bytes(layer, part), to);
}

Status KvCache::Write(uint32_t layer, KvTensor part, uint32_t first_cell,
                      std::span<const std::byte> from) const {
  const Location& at = LocationOf(layer, part);
  return buffers_[at.buffer].Write(at.offset + first_cell * cell_bytes(layer, part), from);
}

Result<StateStore> StateStore::Allocate(const MemoryShape& shape, uint32_t n_slots) {
  StateStore store;
  store.slot_values_ = shape.state_values();
  uint64_t begin = 0;
  for (const LayerMemory& layer : shape.layers) {
    store.begins_.push_back(begin);
    begin += layer.state_values;
  }
  store.begins_.push_back(begin);
  TRY(store.buffer_, BackendBuffer::OnHost(BytesFor(shape, n_slots)));
  return store;
}

std::span<float> StateStore::all(StateSlot slot) const {
  auto* values = reinterpret_cast<float*>(buffer_.data());
  return {values + slot.value * slot_values_, slot_values_};
}

std::span<float> StateStore::state(StateSlot slot, uint32_t layer) const {
  return all(slot).subspan(begins_[layer], begins_[layer + 1] - begins_[layer]);
}

}  // namespace moestro
