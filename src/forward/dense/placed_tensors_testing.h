// SPDX-License-Identifier: MIT
// Tensors of a test's graph, with places in one buffer of the host.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <cstring>
#include <span>

#include "base/number.h"
#include "compute/backend_buffer.h"

namespace moestro {

class PlacedTensors {
 public:
  // bytes: of all tensors together. The context must outlive this.
  PlacedTensors(ggml_context* context, uint64_t bytes)
      : context_(context), buffer_(*BackendBuffer::OnHost(bytes)) {}

  // Gives a tensor of the context its place.
  ggml_tensor* Place(ggml_tensor* tensor) {
    buffer_.Place(tensor, used_);
    used_ += AlignUp(ggml_nbytes(tensor), 64);
    return tensor;
  }
  // A new tensor of `values`, [values / width][width].
  ggml_tensor* Input(int64_t width, std::span<const float> values) {
    const int64_t rows = static_cast<int64_t>(values.size()) / width;
    ggml_tensor* tensor = Place(ggml_new_tensor_2d(context_, GGML_TYPE_F32, width, rows));
    std::memcpy(tensor->data, values.data(), ggml_nbytes(tensor));
    return tensor;
  }

 private:
  ggml_context* context_;
  BackendBuffer buffer_;
  uint64_t used_ = 0;
};

}  // namespace moestro
