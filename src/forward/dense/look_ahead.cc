// SPDX-License-Identifier: MIT
#include "forward/dense/look_ahead.h"

#include <ggml.h>

#include <cstddef>
#include <vector>

#include "base/check.h"

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

Result<LookAheadRouters> LookAheadRouters::Allocate(const ModelSpec& spec) {
  LookAheadRouters routers;
  routers.n_embd_ = spec.n_embd;
  routers.n_expert_ = spec.router.n_expert;
  TRY(routers.buffer_, HostBuffer::Allocate(BytesFor(spec)));
  return routers;
}

void LookAheadRouters::Fill(const ModelTensors& tensors) {
  const auto values = static_cast<size_t>(n_embd_ * n_expert_);
  std::vector<float> floats(values);
  std::byte* to = buffer_.data();
  for (const LayerTensors& layer : tensors.layers) {
    const ggml_tensor* router = layer.router;
    if (router == nullptr) continue;  // a dense layer
    CHECK(ggml_nelements(router) == n_embd_ * n_expert_);
    if (router->type == GGML_TYPE_F32) {
      const auto* from = static_cast<const float*>(router->data);
      floats.assign(from, from + values);
    } else {
      ggml_get_type_traits(router->type)
          ->to_float(router->data, floats.data(), static_cast<int64_t>(values));
    }
    to += ggml_quantize_chunk(TypeFor(n_embd_), floats.data(), to, 0, n_expert_, n_embd_, nullptr);
  }
}

ggml_tensor* LookAheadRouters::Stack(ggml_context* ctx, uint32_t first, uint32_t layers) const {
  ggml_tensor* routers =
      ggml_new_tensor_2d(ctx, TypeFor(n_embd_), n_embd_, n_expert_ * int64_t{layers});
  buffer_.Place(routers, first * BytesOfLayer(n_embd_, n_expert_));
  return routers;
}

}  // namespace moestro
