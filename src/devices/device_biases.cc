// SPDX-License-Identifier: MIT
#include "devices/device_biases.h"

#include "base/bytes.h"

namespace moestro {
namespace {

uint64_t WidthOf(const DeviceBiases::Shape& shape, size_t layer, size_t m) {
  return static_cast<Matrix>(m) == Matrix::kDown ? shape.n_embd : shape.n_ff[layer];
}

uint64_t BytesOf(const DeviceBiases::Shape& shape, size_t layer, size_t m) {
  return WidthOf(shape, layer, m) * shape.n_expert * sizeof(float);
}

}  // namespace

uint64_t DeviceBiases::BytesFor(const ComputeDevice& device, const Shape& shape) {
  const uint64_t alignment = BackendBuffer::AlignmentOf(device.backend());
  uint64_t bytes = 0;
  for (size_t l = 0; l < shape.has.size(); ++l) {
    for (size_t m = 0; m < kMatrices; ++m) {
      if (shape.has[l][m]) bytes += AlignUp(BytesOf(shape, l, m), alignment);
    }
  }
  return bytes;
}

Result<DeviceBiases> DeviceBiases::Load(const ComputeDevice& device, const Shape& shape,
                                        const Source& source) {
  DeviceBiases biases;
  const uint64_t bytes = BytesFor(device, shape);
  if (bytes == 0) return biases;
  TRY(biases.memory_, BackendBuffer::On(device.backend(), bytes));
  const size_t tensors = shape.has.size() * kMatrices;
  biases.context_.reset(ggml_init(
      {.mem_size = tensors * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
  const uint64_t alignment = BackendBuffer::AlignmentOf(device.backend());
  std::vector<std::byte> values;
  uint64_t offset = 0;
  for (uint16_t l = 0; l < shape.has.size(); ++l) {
    Tensors& layer = biases.layers_.emplace_back();
    for (size_t m = 0; m < kMatrices; ++m) {
      if (!shape.has[l][m]) continue;
      layer[m] = ggml_new_tensor_2d(biases.context_.get(), GGML_TYPE_F32,
                                    static_cast<int64_t>(WidthOf(shape, l, m)), shape.n_expert);
      biases.memory_.Place(layer[m], offset);
      values.resize(BytesOf(shape, l, m));
      TRY_STATUS(source(ExpertLayerId{l}, static_cast<Matrix>(m), values));
      TRY_STATUS(biases.memory_.Write(offset, values));
      offset += AlignUp(values.size(), alignment);
    }
  }
  return biases;
}

}  // namespace moestro
