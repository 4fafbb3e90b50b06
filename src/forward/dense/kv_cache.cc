// SPDX-License-Identifier: MIT
#include "forward/dense/kv_cache.h"

#include "base/bytes.h"

namespace moestro {
namespace {

constexpr uint64_t kMatrixAlignment = 64;

uint64_t MatrixBytes(uint32_t width, uint32_t n_cells, ggml_backend_t backend) {
  const uint64_t alignment =
      backend == nullptr ? kMatrixAlignment : BackendBuffer::AlignmentOf(backend);
  return AlignUp(uint64_t{width} * n_cells * sizeof(Half), alignment);
}

}  // namespace

uint64_t KvCache::BytesFor(const ModelSpec& spec, uint32_t n_cells, ggml_backend_t backend) {
  return uint64_t{spec.n_layer} * (MatrixBytes(spec.n_embd_k(), n_cells, backend) +
                                   MatrixBytes(spec.n_embd_v(), n_cells, backend));
}

Result<KvCache> KvCache::Allocate(const ModelSpec& spec, uint32_t n_cells, ggml_backend_t backend) {
  KvCache kv;
  kv.n_layer_ = spec.n_layer;
  kv.n_cells_ = n_cells;
  kv.n_embd_k_ = spec.n_embd_k();
  kv.n_embd_v_ = spec.n_embd_v();
  kv.k_bytes_ = MatrixBytes(kv.n_embd_k_, n_cells, backend);
  kv.layer_stride_ = kv.k_bytes_ + MatrixBytes(kv.n_embd_v_, n_cells, backend);
  TRY(kv.buffer_, BackendBuffer::Where(backend, BytesFor(spec, n_cells, backend)));
  return kv;
}

KvCache::Layer KvCache::layer(uint32_t layer) const {
  std::byte* base = buffer_.data();
  return {.k = reinterpret_cast<Half*>(base + OffsetOf(layer, Part::kKeys)),
          .v = reinterpret_cast<Half*>(base + OffsetOf(layer, Part::kValues))};
}

ggml_tensor* KvCache::K(ggml_context* ctx, uint32_t layer) const {
  ggml_tensor* k = ggml_new_tensor_2d(ctx, GGML_TYPE_F16, n_embd_k_, n_cells_);
  buffer_.Place(k, OffsetOf(layer, Part::kKeys));
  return k;
}

ggml_tensor* KvCache::V(ggml_context* ctx, uint32_t layer) const {
  ggml_tensor* v = ggml_new_tensor_2d(ctx, GGML_TYPE_F16, n_embd_v_, n_cells_);
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
