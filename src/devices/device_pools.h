// SPDX-License-Identifier: MIT
// Slots for experts, and experts' biases, in a device's memory.
//
// Thread rule: any thread may fill slots that no launch reads.
#pragma once

#include <ggml-cpp.h>
#include <ggml.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "base/result.h"
#include "compute/backend_buffer.h"
#include "compute/backend_calls.h"
#include "compute/devices.h"
#include "core/expert_catalog.h"
#include "core/ids.h"

namespace moestro {

// Slots for experts in a device's memory: for each form three tensors [n_in, n_out, slots], so that
// ggml's product by expert (mul_mat_id) takes slots for experts. A device limits the size of a
// tensor, so a form may have several pieces of three tensors each; slots are numbered through.
// Slots are cleared at the start. Each piece has one slot to spare, since kernels read past the end
// of a row.

class DevicePools {
 public:
  static constexpr uint64_t kOnePiece = std::numeric_limits<uint64_t>::max();
  // The most slots of a form that a piece may hold on the device: a multiple of `together`, if that
  // many fit, so that the experts of a layer lie in one piece.
  static uint64_t SlotsOfPiece(const ComputeDevice& device, const CopyForm& form,
                               uint64_t together = 1);
  static uint64_t BytesFor(const CopyForm& form, uint64_t slots, uint64_t of_piece = kOnePiece);
  // The most slots that take no more than `bytes`.
  static uint64_t SlotsIn(uint64_t bytes, const CopyForm& form, uint64_t of_piece);

  // The size of a form's pool. slots: 0: none; of_piece: at most SlotsOfPiece().
  struct Size {
    uint64_t slots = 0;
    uint64_t of_piece = kOnePiece;
  };
  // Divides `bytes` among the forms in proportion to the bytes of their experts. experts: [form],
  // the most slots of a form; 0: the device computes no such expert. together: experts of a layer.
  static std::vector<Size> Divide(const ComputeDevice& device, uint64_t bytes,
                                  std::span<const CopyForm> forms,
                                  std::span<const uint64_t> experts, uint64_t together = 1);
  // kNoMemory if the device refuses, kDevice.
  static Result<DevicePools> Allocate(const ComputeDevice& device, std::span<const CopyForm> forms,
                                      std::span<const Size> sizes);

  // Three tensors [n_in, n_out, slots of the piece + 1]; null: experts of the form lack the matrix.
  using Piece = std::array<ggml_tensor*, kMatrices>;
  // The most pieces of a form.
  size_t most_pieces() const;
  // The place of a slot.
  struct SlotAddress {
    size_t piece;
    uint32_t slot;  // within the piece
  };
  SlotAddress Find(uint32_t form, SlotId slot) const;
  // null for a form without slots.
  ggml_tensor* tensor(uint32_t form, size_t piece, Matrix matrix) const {
    const std::vector<Piece>& pieces = forms_[form].pieces;
    return pieces.empty() ? nullptr : pieces[piece][static_cast<size_t>(matrix)];
  }
  // Bytes of a slot in the tensor, contiguous.
  static size_t SliceBytes(const ggml_tensor* tensor) { return tensor->nb[2]; }

 private:
  struct Form {
    uint64_t of_piece = kOnePiece;
    std::vector<Piece> pieces;
  };
  Result<Piece> AllocatePiece(const ComputeDevice& device, const CopyForm& form, uint64_t slots);

  std::vector<ggml_context_ptr> contexts_;
  std::vector<BufferPtr> buffers_;
  std::vector<Form> forms_;
};

// Biases of experts' products in a device's memory: a tensor [n_out, experts] of F32 for each layer
// and matrix with a bias. Biases are small beside the experts, so all of them stay on the device.
//
// Thread rule: the engine thread.

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
