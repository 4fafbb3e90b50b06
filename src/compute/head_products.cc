// SPDX-License-Identifier: MIT
#include "compute/head_products.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/number.h"
#include "base/result.h"
#include "compute/weight_set.h"

namespace moestro {
namespace {

constexpr size_t kHeadAlignment = 64;  // alignment of quantised values
// Rows of a matrix that a thread takes at a time, and rows of activations of a call.
constexpr int64_t kHeadTile = ExpertKernel::kInterleavedRows;
constexpr int64_t kHeadRows = 64;

std::byte* AlignedHeads(const ggml_tensor* bytes) {
  return reinterpret_cast<std::byte*>(
      AlignUp(reinterpret_cast<uintptr_t>(bytes->data), kHeadAlignment));
}

// x F32 [n, n_head, rows] -> [rows][n_head][activation_bytes(n)]; threads share rows and heads.
void QuantiseHeads(ggml_tensor* result, int thread, int n_threads, void* userdata) {
  const auto& kernel = *static_cast<const ExpertKernel*>(userdata);
  const ggml_tensor* x = result->src[0];
  const auto* from = static_cast<const std::byte*>(x->data);
  const size_t bytes = kernel.activation_bytes(x->ne[0]);
  for (int64_t i = thread; i < x->ne[1] * x->ne[2]; i += n_threads) {
    const auto head = static_cast<size_t>(i % x->ne[1]);
    const auto row = static_cast<size_t>(i / x->ne[1]);
    kernel.quantise(kernel, reinterpret_cast<const float*>(from + row * x->nb[2] + head * x->nb[1]),
                    AlignedHeads(result) + static_cast<size_t>(i) * bytes, x->ne[0]);
  }
}

// Multiplies rows [begin, end) of one head's matrix with the head's values of all rows of
// activations.
void MultiplyHead(const ggml_tensor* result, const ExpertKernel& kernel, int64_t head,
                  int64_t begin, int64_t end) {
  const ggml_tensor* quantised = result->src[0];
  const ggml_tensor* w = result->src[1];
  const size_t bytes = kernel.activation_bytes(w->ne[0]);
  const auto* rows = static_cast<const std::byte*>(w->data) + static_cast<size_t>(head) * w->nb[2] +
                     static_cast<size_t>(begin) * w->nb[1];
  auto* to = static_cast<float*>(result->data);
  const int64_t n_head = result->ne[1];
  std::array<const std::byte*, kHeadRows> x{};
  std::array<float*, kHeadRows> out{};
  for (int64_t first = 0; first < result->ne[2]; first += kHeadRows) {
    const int64_t n = std::min(kHeadRows, result->ne[2] - first);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t at = (first + i) * n_head + head;
      x[static_cast<size_t>(i)] = AlignedHeads(quantised) + static_cast<size_t>(at) * bytes;
      out[static_cast<size_t>(i)] = to + at * w->ne[1] + begin;
    }
    kernel.multiply(kernel, {.rows = rows,
                             .row_bytes = w->nb[1],
                             .n_in = w->ne[0],
                             .n_rows = end - begin,
                             .activations = x.data(),
                             .out = out.data(),
                             .n_tokens = n});
  }
}

// Divides the tiles of all heads, one after the other, among the threads.
void MultiplyHeads(ggml_tensor* result, int thread, int n_threads, void* userdata) {
  const auto& kernel = *static_cast<const ExpertKernel*>(userdata);
  const RowProduct* by_row = RowProductOf(result->src[1]);
  const ScopedTeamTime timed(by_row != nullptr ? by_row->time : nullptr, thread);
  const int64_t n_out = result->ne[0];
  const int64_t of_head = (n_out + kHeadTile - 1) / kHeadTile;
  const int64_t tiles = of_head * result->ne[1];
  const int64_t end = tiles * (thread + 1) / n_threads;
  for (int64_t at = tiles * thread / n_threads; at < end;) {
    const int64_t head = at / of_head;
    const int64_t last = std::min(end, (head + 1) * of_head);
    MultiplyHead(result, kernel, head, at % of_head * kHeadTile,
                 std::min(n_out, (last - head * of_head) * kHeadTile));
    at = last;
  }
}

}  // namespace

ggml_tensor* HeadProducts::Node(ggml_context* ctx, ggml_tensor* matrices, ggml_tensor* x) {
  CHECK(x->type == GGML_TYPE_F32 && x->nb[0] == sizeof(float) && x->ne[3] == 1);
  CHECK(matrices->ne[0] == x->ne[0] && matrices->ne[2] == x->ne[1]);
  const ExpertKernel& kernel = KernelFor(matrices);
  // ggml's nodes take userdata that is not const; the kernel is only read.
  void* const userdata = const_cast<ExpertKernel*>(&kernel);
  const auto bytes = static_cast<int64_t>(kernel.activation_bytes(x->ne[0]));
  ggml_tensor* quantised =
      ggml_custom_4d(ctx, GGML_TYPE_I8, bytes * x->ne[1] * x->ne[2] + int64_t{kHeadAlignment}, 1, 1,
                     1, &x, 1, QuantiseHeads, GGML_N_TASKS_MAX, userdata);
  std::array<ggml_tensor*, 2> args = {quantised, matrices};
  return ggml_custom_4d(ctx, GGML_TYPE_F32, matrices->ne[1], x->ne[1], x->ne[2], 1, args.data(),
                        static_cast<int>(args.size()), MultiplyHeads, GGML_N_TASKS_MAX, userdata);
}

const ExpertKernel& HeadProducts::KernelFor(const ggml_tensor* matrices) {
  const RowProduct* by_row = RowProductOf(matrices);
  const bool is_own = by_row != nullptr && by_row->kernel != nullptr;
  for (const Known& known : known_) {
    if (known.type == matrices->type && known.is_own == is_own) return *known.kernel;
  }
  Result<ExpertKernel> found = FindExpertKernel(matrices->type, is_own);
  CHECK(found.has_value());
  known_.push_back({.type = matrices->type,
                    .is_own = is_own,
                    .kernel = std::make_unique<const ExpertKernel>(*std::move(found))});
  return *known_.back().kernel;
}

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
