// SPDX-License-Identifier: MIT
#include "device/turned_heads.h"

#include <cstring>

#include "base/bytes.h"
#include "base/check.h"

namespace moestro {
namespace {

constexpr uint64_t kTurnedAlignment = 64;

// F32 for BF16, whose values F16 cannot hold.
ggml_type TurnedType(ggml_type type) {
  return type == GGML_TYPE_F32 || type == GGML_TYPE_BF16 ? GGML_TYPE_F32 : GGML_TYPE_F16;
}

uint64_t TurnedBytes(const TurnedHeads::Matrix& m) {
  const uint64_t values = uint64_t{m.n_head} * m.n_turned * m.n_row;
  return AlignUp(values * ggml_type_size(TurnedType(m.type)), kTurnedAlignment);
}

void ToFloats(const ggml_tensor* from, const std::byte* row, std::span<float> to) {
  if (from->type == GGML_TYPE_F32) {
    std::memcpy(to.data(), row, to.size_bytes());
  } else {
    ggml_get_type_traits(from->type)->to_float(row, to.data(), static_cast<int64_t>(to.size()));
  }
}

// Writes one value every `stride` bytes.
void ToColumn(std::span<const float> values, ggml_type type, std::byte* to, size_t stride) {
  for (const float value : values) {
    if (type == GGML_TYPE_F32) {
      std::memcpy(to, &value, sizeof value);
    } else {
      const ggml_fp16_t half = ggml_fp32_to_fp16(value);
      std::memcpy(to, &half, sizeof half);
    }
    to += stride;
  }
}

}  // namespace

uint64_t TurnedHeads::BytesFor(std::span<const Matrix> matrices) {
  uint64_t bytes = 0;
  for (const Matrix& m : matrices) bytes += TurnedBytes(m);
  return bytes;
}

Result<TurnedHeads> TurnedHeads::Allocate(std::span<const Matrix> matrices) {
  TurnedHeads heads;
  if (matrices.empty()) return heads;
  heads.matrices_.assign(matrices.begin(), matrices.end());
  TRY(heads.buffer_, BackendBuffer::OnHost(BytesFor(matrices)));
  heads.context_.reset(ggml_init({.mem_size = (matrices.size() + 1) * ggml_tensor_overhead(),
                                  .mem_buffer = nullptr,
                                  .no_alloc = true}));
  uint64_t at = 0;
  for (const Matrix& m : matrices) {
    ggml_tensor* to =
        ggml_new_tensor_3d(heads.context_.get(), TurnedType(m.type), m.n_turned, m.n_row, m.n_head);
    heads.buffer_.Place(to, at);
    at += TurnedBytes(m);
    heads.turned_.push_back(to);
  }
  return heads;
}

void TurnedHeads::Fill(size_t i, const ggml_tensor* from) const {
  const Matrix& m = matrices_[i];
  CHECK(from->ne[0] == m.n_row && from->ne[1] == int64_t{m.n_head} * (m.n_turned + m.n_left));
  const ggml_tensor* to = turned_[i];
  std::vector<float> row(m.n_row);
  for (size_t head = 0; head < m.n_head; ++head) {
    for (size_t t = 0; t < m.n_turned; ++t) {
      const size_t number = head * (m.n_turned + m.n_left) + t;
      ToFloats(from, static_cast<const std::byte*>(from->data) + number * from->nb[1], row);
      ToColumn(row, to->type, static_cast<std::byte*>(to->data) + head * to->nb[2] + t * to->nb[0],
               to->nb[1]);
    }
  }
}

}  // namespace moestro
