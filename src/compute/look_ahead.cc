// SPDX-License-Identifier: MIT
#include "compute/look_ahead.h"

#include <cstddef>
#include <cstring>
#include <vector>

#include "base/result.h"
#include "compute/backend_calls.h"

namespace moestro {
namespace {

ggml_type TypeFor(int64_t n_embd) {
  return n_embd % ggml_blck_size(GGML_TYPE_Q8_0) == 0 ? GGML_TYPE_Q8_0 : GGML_TYPE_F32;
}

uint64_t BytesOfLayer(const LookAheadRouters::Shape& shape) {
  return ggml_row_size(TypeFor(shape.n_embd), shape.n_embd) * static_cast<uint64_t>(shape.n_expert);
}

}  // namespace

uint64_t LookAheadRouters::BytesFor(const Shape& shape) {
  return BytesOfLayer(shape) * shape.layers;
}

Result<LookAheadRouters> LookAheadRouters::Allocate(const Shape& shape, ggml_backend_t backend,
                                                    TeamTime* time) {
  LookAheadRouters routers;
  routers.shape_ = shape;
  routers.context_.reset(
      ggml_init({.mem_size = 2 * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
  routers.all_ = ggml_new_tensor_2d(routers.context_.get(), TypeFor(shape.n_embd), shape.n_embd,
                                    shape.n_expert * int64_t{shape.layers});
  // A device may need more than the bytes of the tensor.
  const uint64_t bytes = backend == nullptr
                             ? BytesFor(shape)
                             : ggml_backend_buft_get_alloc_size(
                                   ggml_backend_get_default_buffer_type(backend), routers.all_);
  TRY(routers.buffer_, BackendBuffer::Where(backend, bytes));
  routers.buffer_.Place(routers.all_, 0);
  if (backend != nullptr) return routers;
  TRY(const ExpertKernel kernel, FindExpertKernel(routers.all_->type));
  routers.kernel_ = std::make_unique<const ExpertKernel>(kernel);
  routers.product_ = std::make_unique<RowProduct>(
      RowProduct{.kernel = routers.kernel_.get(), .is_interleaved = false, .time = time});
  routers.all_->extra = routers.product_.get();
  return routers;
}

Status LookAheadRouters::Fill(std::span<const ggml_tensor* const> routers,
                              std::span<const ggml_tensor* const> scales) {
  CHECK(routers.size() == shape_.layers && (scales.empty() || scales.size() == routers.size()));
  const auto values = static_cast<size_t>(shape_.n_embd * shape_.n_expert);
  std::vector<float> floats(values);
  std::vector<std::byte> bytes(BytesOfLayer(shape_));
  uint64_t offset = 0;
  for (size_t l = 0; l < routers.size(); ++l) {
    const ggml_tensor* const router = routers[l];
    CHECK(ggml_nelements(router) == static_cast<int64_t>(values));
    std::vector<std::byte> given(ggml_nbytes(router));
    TRY_STATUS(CopyFrom(router, 0, given));
    if (router->type == GGML_TYPE_F32) {
      std::memcpy(floats.data(), given.data(), given.size());
    } else {
      ggml_get_type_traits(router->type)
          ->to_float(given.data(), floats.data(), static_cast<int64_t>(values));
    }
    if (!scales.empty() && scales[l] != nullptr) {
      std::vector<float> scale(static_cast<size_t>(shape_.n_embd));
      TRY_STATUS(CopyFrom(scales[l], 0, std::as_writable_bytes(std::span(scale))));
      for (size_t i = 0; i < values; ++i) floats[i] *= scale[i % scale.size()];
    }
    ggml_quantize_chunk(TypeFor(shape_.n_embd), floats.data(), bytes.data(), 0, shape_.n_expert,
                        shape_.n_embd, nullptr);
    TRY_STATUS(buffer_.Write(offset, bytes));
    offset += bytes.size();
  }
  return {};
}

ggml_tensor* LookAheadRouters::Stack(ggml_context* ctx, uint32_t first, uint32_t layers) const {
  return ggml_view_2d(ctx, all_, shape_.n_embd, shape_.n_expert * int64_t{layers}, all_->nb[1],
                      first * BytesOfLayer(shape_));
}

}  // namespace moestro
