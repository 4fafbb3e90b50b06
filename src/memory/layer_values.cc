// SPDX-License-Identifier: MIT
#include "memory/layer_values.h"

#include <array>
#include <cstring>

#include "base/number.h"

namespace moestro {
namespace {

constexpr uint64_t kMatrixAlignment = 64;

// Offsets of the keys and the values of each layer, and the end.
std::vector<uint64_t> BeginsOf(const MemoryShape& shape, const CellCounts& cells,
                               ggml_backend_t backend) {
  const uint64_t alignment =
      backend == nullptr ? kMatrixAlignment : BackendBuffer::AlignmentOf(backend);
  std::vector<uint64_t> begins;
  uint64_t end = 0;
  for (uint32_t l = 0; l < shape.layers.size(); ++l) {
    if (shape.layers[l].shares_cells) {
      begins.append_range(std::array{begins[2 * l - 2], begins[2 * l - 1]});
      continue;
    }
    for (const uint64_t bytes : {shape.key_bytes(l), shape.value_bytes(l)}) {
      begins.push_back(end);
      end += AlignUp(bytes * cells.of(shape.layers[l]), alignment);
    }
  }
  begins.push_back(end);
  return begins;
}

}  // namespace

uint64_t KvCache::BytesFor(const MemoryShape& shape, const CellCounts& cells,
                           ggml_backend_t backend) {
  return BeginsOf(shape, cells, backend).back();
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
                                  ggml_backend_t backend) {
  KvCache kv;
  kv.shape_ = shape;
  kv.cells_ = cells;
  kv.begins_ = BeginsOf(shape, cells, backend);
  TRY(kv.buffer_, BackendBuffer::Where(backend, kv.begins_.back()));
  return kv;
}

KvCache::Layer KvCache::layer(uint32_t layer) const {
  std::byte* base = buffer_.data();
  return {.k = base + OffsetOf(layer, KvTensor::kKeys),
          .v = base + OffsetOf(layer, KvTensor::kValues)};
}

ggml_tensor* KvCache::K(ggml_context* ctx, uint32_t layer) const {
  ggml_tensor* k =
      ggml_new_tensor_2d(ctx, TensorType(type()), shape_.layers[layer].keys, cells_of(layer));
  buffer_.Place(k, OffsetOf(layer, KvTensor::kKeys));
  return k;
}

ggml_tensor* KvCache::V(ggml_context* ctx, uint32_t layer) const {
  ggml_tensor* v =
      ggml_new_tensor_2d(ctx, TensorType(type()), shape_.layers[layer].values, cells_of(layer));
  buffer_.Place(v, OffsetOf(layer, KvTensor::kValues));
  return v;
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
  return buffer_.Read(OffsetOf(layer, part) + first_cell * cell_bytes(layer, part), to);
}

Status KvCache::Write(uint32_t layer, KvTensor part, uint32_t first_cell,
                      std::span<const std::byte> from) const {
  return buffer_.Write(OffsetOf(layer, part) + first_cell * cell_bytes(layer, part), from);
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
