// SPDX-License-Identifier: MIT
#include "forward/dense/kv_cache.h"

#include <ggml.h>

#include "base/bytes.h"

namespace moestro {
namespace {

constexpr uint64_t kMatrixAlignment = 64;

uint64_t MatrixBytes(uint32_t width, uint32_t n_cells) {
  return AlignUp(uint64_t{width} * n_cells * sizeof(Half), kMatrixAlignment);
}

}  // namespace

uint64_t KvCache::BytesFor(const ModelSpec& spec, uint32_t n_cells) {
  return uint64_t{spec.n_layer} *
         (MatrixBytes(spec.n_embd_k(), n_cells) + MatrixBytes(spec.n_embd_v(), n_cells));
}

Result<KvCache> KvCache::Allocate(const ModelSpec& spec, uint32_t n_cells) {
  KvCache kv;
  kv.n_layer_ = spec.n_layer;
  kv.n_cells_ = n_cells;
  kv.n_embd_k_ = spec.n_embd_k();
  kv.n_embd_v_ = spec.n_embd_v();
  kv.k_bytes_ = MatrixBytes(kv.n_embd_k_, n_cells);
  kv.layer_stride_ = kv.k_bytes_ + MatrixBytes(kv.n_embd_v_, n_cells);
  TRY(kv.buffer_, HostBuffer::Allocate(BytesFor(spec, n_cells)));
  return kv;
}

KvCache::Layer KvCache::layer(uint32_t layer) const {
  std::byte* base = buffer_.data() + layer * layer_stride_;
  return {.k = reinterpret_cast<Half*>(base), .v = reinterpret_cast<Half*>(base + k_bytes_)};
}

ggml_tensor* KvCache::K(ggml_context* ctx, uint32_t layer) const {
  ggml_tensor* k = ggml_new_tensor_2d(ctx, GGML_TYPE_F16, n_embd_k_, n_cells_);
  buffer_.Place(k, layer * layer_stride_);
  return k;
}

ggml_tensor* KvCache::V(ggml_context* ctx, uint32_t layer) const {
  ggml_tensor* v = ggml_new_tensor_2d(ctx, GGML_TYPE_F16, n_embd_v_, n_cells_);
  buffer_.Place(v, layer * layer_stride_ + k_bytes_);
  return v;
}

}  // namespace moestro
