// SPDX-License-Identifier: MIT
// Biases of experts' products in a device's memory: a tensor [n_out, experts] of F32 for each layer
// and matrix with a bias. Biases are small beside the experts, so all of them stay on the device.
//
// Thread rule: the engine thread.
#pragma once

#include <ggml-cpp.h>
#include <ggml.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "compute/backend_buffer.h"
#include "compute/devices.h"
#include "core/ids.h"

namespace moestro {

class DeviceBiases {
 public:
  struct Shape {
    uint32_t n_embd = 0;
    uint32_t n_expert = 0;
    std::vector<uint32_t> n_ff = {};                    // by layer with experts
    std::vector<std::array<bool, kMatrices>> has = {};  // by layer with experts
  };
  static uint64_t BytesFor(const ComputeDevice& device, const Shape& shape);

  // Gives the biases of one matrix for all experts of a layer: [experts][n_out] of F32.
  using Source = std::function<Status(ExpertLayerId layer, Matrix matrix, std::span<std::byte> to)>;
  // Fails as `source` does, with kNoMemory or kDevice.
  static Result<DeviceBiases> Load(const ComputeDevice& device, const Shape& shape,
                                   const Source& source);
  // The biases of a model without biases.
  DeviceBiases() = default;

  // [n_out, experts]; null: the matrix has no bias.
  using Tensors = std::array<ggml_tensor*, kMatrices>;
  Tensors of(ExpertLayerId layer) const {
    return layer.value < layers_.size() ? layers_[layer.value] : Tensors{};
  }

 private:
  BackendBuffer memory_;
  ggml_context_ptr context_;
  std::vector<Tensors> layers_;  // empty: no layer has biases
};

}  // namespace moestro
