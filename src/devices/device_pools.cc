// SPDX-License-Identifier: MIT
#include "devices/device_pools.h"

#include <ggml-backend.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/number.h"

namespace moestro {
namespace {

struct MatrixShape {
  ggml_type type;
  int64_t n_in;
  int64_t n_out;

  uint64_t bytes() const { return ggml_row_size(type, n_in) * static_cast<uint64_t>(n_out); }
};

MatrixShape ShapeOf(const CopyForm& form, size_t m) {
  const bool is_down = static_cast<Matrix>(m) == Matrix::kDown;
  return {.type = static_cast<ggml_type>(form.types[m]),
          .n_in = is_down ? form.n_ff : form.n_embd,
          .n_out = is_down ? form.n_embd : form.n_ff};
}

constexpr uint64_t kSpare = 1;

uint64_t SlotBytes(const CopyForm& form) {
  uint64_t bytes = 0;
  for (size_t m = 0; m < kMatrices; ++m) {
    if (form.has(m)) bytes += ShapeOf(form, m).bytes();
  }
  return bytes;
}

uint64_t PiecesOf(uint64_t slots, uint64_t of_piece) {
  return slots / of_piece + (slots % of_piece > 0 ? 1 : 0);
}

}  // namespace

uint64_t DevicePools::SlotsOfPiece(const ComputeDevice& device, const CopyForm& form,
                                   uint64_t together) {
  const uint64_t most_bytes =
      ggml_backend_buft_get_max_size(ggml_backend_get_default_buffer_type(device.backend()));
  // Kernels count a tensor's blocks with 31 bits.
  constexpr auto kBlocks = static_cast<uint64_t>(std::numeric_limits<int32_t>::max());
  uint64_t most = kOnePiece;
  for (size_t m = 0; m < kMatrices; ++m) {
    if (!form.has(m)) continue;
    const MatrixShape shape = ShapeOf(form, m);
    const uint64_t blocks = shape.bytes() / ggml_type_size(shape.type);
    most = std::min({most, most_bytes / shape.bytes(), kBlocks / blocks});
  }
  most -= std::min(most, kSpare);
  return most > together ? AlignDown(most, together) : most;
}

uint64_t DevicePools::BytesFor(const CopyForm& form, uint64_t slots, uint64_t of_piece) {
  return slots > 0 ? (slots + kSpare * PiecesOf(slots, of_piece)) * SlotBytes(form) : 0;
}

uint64_t DevicePools::SlotsIn(uint64_t bytes, const CopyForm& form, uint64_t of_piece) {
  const uint64_t one = SlotBytes(form);
  if (one == 0 || of_piece == 0) return 0;
  const uint64_t all = bytes / one;  // slots, spare ones included
  const uint64_t most = of_piece == kOnePiece ? of_piece : of_piece + kSpare;
  return all - std::min(all, kSpare * PiecesOf(all, most));
}

Result<DevicePools::Piece> DevicePools::AllocatePiece(const ComputeDevice& device,
                                                      const CopyForm& form, uint64_t slots) {
  ggml_backend_buffer_type_t type = ggml_backend_get_default_buffer_type(device.backend());
  Piece tensors{};
  for (size_t m = 0; m < kMatrices; ++m) {
    if (!form.has(m)) continue;
    const MatrixShape shape = ShapeOf(form, m);
    const ggml_init_params params{
        .mem_size = 2 * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true};
    contexts_.emplace_back(ggml_init(params));
    ggml_context* context = contexts_.back().get();
    tensors[m] = ggml_new_tensor_3d(context, shape.type, shape.n_in, shape.n_out,
                                    static_cast<int64_t>(slots + kSpare));
    Result<BufferPtr> buffer = AllocateTensors(context, type);
    if (!buffer && buffer.error().code == Errc::kNoMemory) {
      return Fail(Errc::kNoMemory, "the device {} has no {} for expert slots", device.info().name,
                  FormatBytes(ggml_nbytes(tensors[m])));
    }
    TRY(buffers_.emplace_back(), std::move(buffer));
    ggml_backend_buffer_set_usage(buffers_.back().get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    TRY_STATUS(ClearBuffer(buffers_.back().get()));
  }
  return tensors;
}

std::vector<DevicePools::Size> DevicePools::Divide(const ComputeDevice& device, uint64_t bytes,
                                                   std::span<const CopyForm> forms,
                                                   std::span<const uint64_t> experts,
                                                   uint64_t together) {
  std::vector<Size> sizes(forms.size());
  std::vector<uint64_t> wanted(forms.size());  // bytes of all experts of a form
  for (size_t f = 0; f < forms.size(); ++f) {
    sizes[f].of_piece = SlotsOfPiece(device, forms[f], together);
    if (experts[f] > 0) wanted[f] = BytesFor(forms[f], experts[f], sizes[f].of_piece);
  }
  const auto all = static_cast<double>(std::reduce(wanted.begin(), wanted.end()));
  for (size_t f = 0; f < forms.size(); ++f) {
    if (experts[f] == 0) continue;
    const double share = static_cast<double>(wanted[f]) / all;
    const auto room = static_cast<uint64_t>(static_cast<double>(bytes) * share);
    sizes[f].slots = std::min(experts[f], SlotsIn(room, forms[f], sizes[f].of_piece));
  }
  return sizes;
}

Result<DevicePools> DevicePools::Allocate(const ComputeDevice& device,
                                          std::span<const CopyForm> forms,
                                          std::span<const Size> sizes) {
  DevicePools pools;
  for (size_t f = 0; f < forms.size(); ++f) {
    Form& its = pools.forms_.emplace_back(Form{.of_piece = sizes[f].of_piece, .pieces = {}});
    for (uint64_t left = sizes[f].slots; left > 0;) {
      const uint64_t slots = std::min(left, its.of_piece);
      TRY(const Piece piece, pools.AllocatePiece(device, forms[f], slots));
      its.pieces.push_back(piece);
      left -= slots;
    }
  }
  return pools;
}

size_t DevicePools::most_pieces() const {
  size_t most = 0;
  for (const Form& form : forms_) most = std::max(most, form.pieces.size());
  return most;
}

DevicePools::SlotAddress DevicePools::Find(uint32_t form, SlotId slot) const {
  const uint64_t of_piece = forms_[form].of_piece;
  return {.piece = slot.value / of_piece, .slot = static_cast<uint32_t>(slot.value % of_piece)};
}

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
