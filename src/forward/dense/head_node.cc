// SPDX-License-Identifier: MIT
#include "forward/dense/head_node.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/result.h"
#include "forward/dense/blocks.h"
#include "memory/layer_values.h"

namespace moestro {
namespace {

constexpr uint32_t kMostDims = 1024;  // values of a head, on a thread's stack

const float* RowsAt(const ggml_tensor* t, int64_t row, int64_t head) {
  const size_t at = static_cast<size_t>(row) * t->nb[2] + static_cast<size_t>(head) * t->nb[1];
  return reinterpret_cast<const float*>(static_cast<const std::byte*>(t->data) + at);
}

// A head's part of the cell that the row's key or value goes to.
std::byte* CellOf(const ggml_tensor* cache, const ggml_tensor* cells, int64_t row,
                  uint64_t head_bytes, int64_t head) {
  const int64_t cell = static_cast<const int64_t*>(cells->data)[row];
  return static_cast<std::byte*>(cache->data) + static_cast<size_t>(cell) * cache->nb[1] +
         head_bytes * static_cast<size_t>(head);
}

// The arguments of the node.
enum Argument : uint8_t {
  kQ,
  kK,
  kV,
  kKCache,
  kVCache,
  kCells,
  kTurns,
  kQNorm,
  kKNorm,
  kArguments
};

}  // namespace

HeadNode::HeadNode(CpuDevice& cpu, const AttentionSpec& spec, KvType kv_type, const RowNorm& norm,
                   ggml_tensor* rope_factors)
    : spec_(spec),
      kv_type_(kv_type),
      norm_(norm),
      rope_factors_(rope_factors),
      arena_(cpu.backend(), 16) {
  const ggml_type_traits_cpu* traits = cpu.traits().Of(KvCache::TensorType(kv_type));
  to_cell_ = traits != nullptr ? traits->from_float : nullptr;
  if (!spec.rope) return;
  const bool has_halves = spec.form.rope_pairs == RopePairs::kHalves;
  turn_ = has_halves ? norm.kernel.turn_halves : norm.kernel.turn_neighbours;
}

Result<std::unique_ptr<HeadNode>> HeadNode::Create(CpuDevice& cpu, const AttentionSpec& spec,
                                                   KvType kv_type, const RowNorm& norm,
                                                   ggml_tensor* rope_factors, uint32_t rows) {
  std::unique_ptr<HeadNode> node(new HeadNode(cpu, spec, kv_type, norm, rope_factors));
  const uint32_t block = InfoOf(kv_type).block;
  const bool has_blocks = spec.head_dim_k % block == 0 && spec.head_dim_v % block == 0;
  if (node->to_cell_ == nullptr || !has_blocks || spec.head_dim_k > kMostDims) return nullptr;
  if (!spec.rope) return node;
  TRY(node->turns_, BackendBuffer::OnHost(uint64_t{rows} * spec.rope->n_dims * sizeof(float)));
  TRY(node->positions_, BackendBuffer::OnHost(uint64_t{rows} * sizeof(int32_t)));
  return node;
}

ggml_tensor* HeadNode::TurnsOf(ggml_context* ctx, uint32_t first, int64_t rows) const {
  const uint32_t n_dims = spec_.rope->n_dims;
  ggml_tensor* turns = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, n_dims, 1, rows);
  turns_.Place(turns, uint64_t{first} * n_dims * sizeof(float));
  return turns;
}

// Computes the turns of a step's rows: ggml turns pairs (1, 0), which gives cosines and sines.
Status HeadNode::SetPositions(std::span<const int32_t> positions) {
  if (turn_ == nullptr || positions.empty()) return {};
  const uint32_t n_dims = spec_.rope->n_dims;
  const bool has_halves = spec_.form.rope_pairs == RopePairs::kHalves;
  auto* values = reinterpret_cast<float*>(turns_.data());
  for (size_t row = 0; row < positions.size(); ++row) {
    for (uint32_t i = 0; i < n_dims; ++i) {
      const bool is_first = has_halves ? i < n_dims / 2 : i % 2 == 0;
      values[row * n_dims + i] = is_first ? 1.0F : 0.0F;
    }
  }
  std::ranges::copy(positions, reinterpret_cast<int32_t*>(positions_.data()));
  ggml_context* ctx = arena_.Begin();
  const auto rows = static_cast<int64_t>(positions.size());
  ggml_tensor* at = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, rows);
  positions_.Place(at, 0);
  ggml_tensor* turned =
      Turned(ctx, TurnsOf(ctx, 0, rows), at, *spec_.rope, spec_.form.rope_pairs, rope_factors_);
  turns_.Place(turned, 0);
  ggml_build_forward_expand(arena_.graph(), turned);
  return arena_.Run();
}

ggml_tensor* HeadNode::Node(ggml_context* ctx, const Inputs& in) const {
  const int64_t rows = in.q->ne[2];
  CHECK(in.q->ne[0] == spec_.head_dim_k && in.q->ne[1] == spec_.n_head);
  CHECK(in.k->ne[0] == spec_.head_dim_k && in.k->ne[1] == spec_.n_head_kv && in.k->ne[2] == rows);
  CHECK(in.v->ne[0] == spec_.n_embd_v() && in.v->ne[1] == rows);
  std::array<ggml_tensor*, kArguments> arguments{};
  arguments[kQ] = in.q;
  arguments[kK] = in.k;
  arguments[kV] = in.v;
  arguments[kKCache] = in.k_cache;
  arguments[kVCache] = in.v_cache;
  arguments[kCells] = in.cells;
  if (turn_ != nullptr) arguments[kTurns] = TurnsOf(ctx, in.first, rows);
  arguments[kQNorm] = in.q_norm;
  arguments[kKNorm] = in.k_norm;
  // ggml's nodes take userdata that is not const; this object is only read.
  return ggml_custom_4d(
      ctx, GGML_TYPE_F32, spec_.head_dim_k, spec_.n_head, rows, 1, arguments.data(),
      static_cast<int>(arguments.size()),
      [](ggml_tensor* result, int thread, int n_threads, void* self) {
        static_cast<const HeadNode*>(self)->Work(result, thread, n_threads);
      },
      GGML_N_TASKS_MAX, const_cast<HeadNode*>(this));
}

// Divides the heads of all rows among the threads: a row's queries, then its keys with their
// values.
void HeadNode::Work(ggml_tensor* result, int thread, int n_threads) const {
  const int64_t heads = int64_t{spec_.n_head} + spec_.n_head_kv;
  const int64_t all = heads * result->ne[2];
  for (int64_t i = all * thread / n_threads; i < all * (thread + 1) / n_threads; ++i) {
    const int64_t head = i % heads;
    if (head < spec_.n_head) {
      WorkOnQuery(result, i / heads, head);
    } else {
      WorkOnKey(result, i / heads, head - spec_.n_head);
    }
  }
}

// Norms and turns a head, [head_dim_k].
void HeadNode::NormAndTurn(const float* from, const ggml_tensor* weight, const float* turns,
                           float* to) const {
  const uint32_t n = spec_.head_dim_k;
  if (weight != nullptr) {
    norm_.kernel.norm(
        {.from = from, .weight = FloatsOf(weight), .to = to, .n = n, .eps = norm_.eps});
  } else {
    std::copy_n(from, n, to);
  }
  if (turns != nullptr) turn_(to, turns, spec_.rope->n_dims);
}

void HeadNode::WorkOnQuery(ggml_tensor* result, int64_t row, int64_t head) const {
  const ggml_tensor* turns = result->src[kTurns];
  auto* to =
      static_cast<float*>(result->data) + (row * spec_.n_head + head) * int64_t{spec_.head_dim_k};
  NormAndTurn(RowsAt(result->src[kQ], row, head), result->src[kQNorm],
              turns != nullptr ? RowsAt(turns, row, 0) : nullptr, to);
}

void HeadNode::WorkOnKey(const ggml_tensor* result, int64_t row, int64_t head) const {
  const ggml_tensor* turns = result->src[kTurns];
  const ggml_tensor* cells = result->src[kCells];
  std::array<float, kMostDims> key;
  NormAndTurn(RowsAt(result->src[kK], row, head), result->src[kKNorm],
              turns != nullptr ? RowsAt(turns, row, 0) : nullptr, key.data());
  to_cell_(key.data(),
           CellOf(result->src[kKCache], cells, row, KvBytes(kv_type_, spec_.head_dim_k), head),
           spec_.head_dim_k);
  const ggml_tensor* v = result->src[kV];
  const auto* values = reinterpret_cast<const float*>(static_cast<const std::byte*>(v->data) +
                                                      static_cast<size_t>(row) * v->nb[1]);
  to_cell_(values + head * spec_.head_dim_v,
           CellOf(result->src[kVCache], cells, row, KvBytes(kv_type_, spec_.head_dim_v), head),
           spec_.head_dim_v);
}

}  // namespace moestro
