// SPDX-License-Identifier: MIT
#include "forward/dense/look_ahead.h"

#include <cstddef>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "device/backend_calls.h"

namespace moestro {
namespace {

ggml_type TypeFor(int64_t n_embd) {
  return n_embd % ggml_blck_size(GGML_TYPE_Q8_0) == 0 ? GGML_TYPE_Q8_0 : GGML_TYPE_F32;
}

uint64_t BytesOfLayer(int64_t n_embd, int64_t n_expert) {
  return ggml_row_size(TypeFor(n_embd), n_embd) * static_cast<uint64_t>(n_expert);
}

}  // namespace

uint64_t LookAheadRouters::BytesFor(const ModelSpec& spec) {
  return BytesOfLayer(spec.n_embd, spec.router.n_expert) * spec.n_expert_layers();
}

Result<LookAheadRouters> LookAheadRouters::Allocate(const ModelSpec& spec, ggml_backend_t backend) {
  LookAheadRouters routers;
  routers.n_embd_ = spec.n_embd;
  routers.n_expert_ = spec.router.n_expert;
  routers.context_.reset(
      ggml_init({.mem_size = 2 * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
  routers.all_ = ggml_new_tensor_2d(routers.context_.get(), TypeFor(routers.n_embd_),
                                    routers.n_embd_, routers.n_expert_ * spec.n_expert_layers());
  // A device may want more than the bytes of the tensor.
  const uint64_t bytes = backend == nullptr
                             ? BytesFor(spec)
                             : ggml_backend_buft_get_alloc_size(
                                   ggml_backend_get_default_buffer_type(backend), routers.all_);
  TRY(routers.buffer_, BackendBuffer::Where(backend, bytes));
  routers.buffer_.Place(routers.all_, 0);
  return routers;
}

Status LookAheadRouters::Fill(const ModelTensors& tensors) {
  const auto values = static_cast<size_t>(n_embd_ * n_expert_);
  std::vector<float> floats(values);
  std::vector<std::byte> bytes(BytesOfLayer(n_embd_, n_expert_));
  uint64_t offset = 0;
  for (const LayerTensors& layer : tensors.layers) {
    const ggml_tensor* router = layer.router;
    if (router == nullptr) continue;  // a dense layer
    CHECK(ggml_nelements(router) == n_embd_ * n_expert_);
    std::vector<std::byte> given(ggml_nbytes(router));
    TRY_STATUS(CopyFrom(router, 0, given));
    if (router->type == GGML_TYPE_F32) {
      std::memcpy(floats.data(), given.data(), given.size());
    } else {
      ggml_get_type_traits(router->type)
          ->to_float(given.data(), floats.data(), static_cast<int64_t>(values));
    }
    ggml_quantize_chunk(TypeFor(n_embd_), floats.data(), bytes.data(), 0, n_expert_, n_embd_,
                        nullptr);
    TRY_STATUS(buffer_.Write(offset, bytes));
    offset += bytes.size();
  }
  return {};
}

ggml_tensor* LookAheadRouters::Stack(ggml_context* ctx, uint32_t first, uint32_t layers) const {
  return ggml_view_2d(ctx, all_, n_embd_, n_expert_ * int64_t{layers}, all_->nb[1],
                      first * BytesOfLayer(n_embd_, n_expert_));
}

}  // namespace moestro
