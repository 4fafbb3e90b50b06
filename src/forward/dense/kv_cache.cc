// SPDX-License-Identifier: MIT
#include "forward/dense/kv_cache.h"

#include "base/bytes.h"
#include "base/check.h"

namespace moestro {
namespace {

constexpr uint64_t kMatrixAlignment = 64;

uint64_t MatrixBytes(KvType type, uint32_t width, uint32_t n_cells, ggml_backend_t backend) {
  const uint64_t alignment =
      backend == nullptr ? kMatrixAlignment : BackendBuffer::AlignmentOf(backend);
  return AlignUp(KvBytes(type, width) * n_cells, alignment);
}

}  // namespace

uint64_t KvCache::BytesFor(const ModelSpec& spec, KvType type, uint32_t n_cells,
                           ggml_backend_t backend) {
  return uint64_t{spec.n_layer} * (MatrixBytes(type, spec.n_embd_k(), n_cells, backend) +
                                   MatrixBytes(type, spec.n_embd_v(), n_cells, backend));
}

ggml_type KvCache::TensorType(KvType type) {
  return type == KvType::kQ8 ? GGML_TYPE_Q8_0 : GGML_TYPE_F16;
}

Result<KvCache> KvCache::Allocate(const ModelSpec& spec, KvType type, uint32_t n_cells,
                                  ggml_backend_t backend) {
  CHECK(CheckKvType(type, spec).has_value());
  KvCache kv;
  kv.type_ = type;
  kv.n_layer_ = spec.n_layer;
  kv.n_cells_ = n_cells;
  kv.n_embd_k_ = spec.n_embd_k();
  kv.n_embd_v_ = spec.n_embd_v();
  kv.k_bytes_ = MatrixBytes(type, kv.n_embd_k_, n_cells, backend);
  kv.layer_stride_ = kv.k_bytes_ + MatrixBytes(type, kv.n_embd_v_, n_cells, backend);
  TRY(kv.buffer_, BackendBuffer::Where(backend, BytesFor(spec, type, n_cells, backend)));
  return kv;
}

KvCache::Layer KvCache::layer(uint32_t layer) const {
  std::byte* base = buffer_.data();
  return {.k = base + OffsetOf(layer, Part::kKeys), .v = base + OffsetOf(layer, Part::kValues)};
}

ggml_tensor* KvCache::K(ggml_context* ctx, uint32_t layer) const {
  ggml_tensor* k = ggml_new_tensor_2d(ctx, TensorType(type_), n_embd_k_, n_cells_);
  buffer_.Place(k, OffsetOf(layer, Part::kKeys));
  return k;
}

ggml_tensor* KvCache::V(ggml_context* ctx, uint32_t layer) const {
  ggml_tensor* v = ggml_new_tensor_2d(ctx, TensorType(type_), n_embd_v_, n_cells_);
  buffer_.Place(v, OffsetOf(layer, Part::kValues));
  return v;
}

Status KvCache::Read(uint32_t layer, Part part, uint32_t first_cell,
                     std::span<std::byte> to) const {
  return buffer_.Read(OffsetOf(layer, part) + first_cell * cell_bytes(part), to);
}

Status KvCache::Write(uint32_t layer, Part part, uint32_t first_cell,
                      std::span<const std::byte> from) const {
  return buffer_.Write(OffsetOf(layer, part) + first_cell * cell_bytes(part), from);
}

}  // namespace moestro
