// SPDX-License-Identifier: MIT
#include "forward/dense/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace moestro {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

}  // namespace

RowAttention::RowAttention(const CpuTraits& traits, const AttentionShape& shape, uint32_t threads)
    : shape_(shape), half_(HalfVector::ForThisMachine()), scratch_(threads) {
  const ggml_type_traits_cpu* f16 = traits.Of(GGML_TYPE_F16);
  if (f16 != nullptr && f16->vec_dot_type == GGML_TYPE_F16) dot_ = f16->vec_dot;
  for (Scratch& s : scratch_) {
    s.query.resize(shape.dim_k);
    s.group.resize(shape.dim_v);
    s.total.resize(shape.dim_v);
  }
}

ggml_tensor* RowAttention::Node(ggml_context* ctx, ggml_tensor* q, const Cache& cache, float scale,
                                std::span<const RowCells> rows) {
  CHECK(q->type == GGML_TYPE_F32 && ggml_is_contiguous(q));
  CHECK(q->ne[0] == shape_.dim_k && q->ne[1] == shape_.n_head);
  CHECK(static_cast<size_t>(q->ne[2]) == rows.size());
  cache_ = cache;
  scale_ = scale;
  rows_ = rows;
  std::array<ggml_tensor*, 1> args = {q};
  const auto call = [](ggml_tensor* result, int thread, int n_threads, void* self) {
    static_cast<RowAttention*>(self)->Work(result, thread, n_threads);
  };
  return ggml_custom_4d(ctx, GGML_TYPE_F32, int64_t{shape_.n_head} * shape_.dim_v, q->ne[2], 1, 1,
                        args.data(), static_cast<int>(args.size()), call, GGML_N_TASKS_MAX, this);
}

// (row, head) pairs in turn: heads that share keys and values run one after the other on different
// threads while the cells are in a shared cache.
void RowAttention::Work(ggml_tensor* result, int thread, int n_threads) {
  const auto* queries = static_cast<const float*>(result->src[0]->data);
  auto* out = static_cast<float*>(result->data);
  const size_t pairs = rows_.size() * shape_.n_head;
  for (auto i = static_cast<size_t>(thread); i < pairs; i += static_cast<size_t>(n_threads)) {
    Attend(queries + i * shape_.dim_k, static_cast<uint32_t>(i % shape_.n_head),
           rows_[i / shape_.n_head], out + i * shape_.dim_v, scratch_[static_cast<size_t>(thread)]);
  }
}

// softmax(scale * K q) V over the row's cells; query [dim_k], out [dim_v].
void RowAttention::Attend(const float* query, uint32_t head, const RowCells& row, float* out,
                          Scratch& scratch) {
  const uint32_t kv_head = head / (shape_.n_head / shape_.n_head_kv);
  const size_t k_row = size_t{shape_.n_head_kv} * shape_.dim_k;
  const size_t v_row = size_t{shape_.n_head_kv} * shape_.dim_v;
  ggml_fp32_to_fp16_row(query, scratch.query.data(), shape_.dim_k);
  std::ranges::fill(scratch.group, Half{0});
  std::ranges::fill(scratch.total, 0.0F);
  Sum group{.largest = kMinusInfinity, .weight = 0.0F};
  Sum total = group;

  // Positions in order, in groups of kGroup whose sums are kept in F16 as ggml does.
  uint32_t position = 0;
  for (const CellRun& run : row.runs) {
    const uint32_t count = std::min(run.count, row.n_positions - position);
    for (uint32_t c = 0; c < count; ++c, ++position) {
      if (position > 0 && position % kGroup == 0) CloseGroup(scratch, group, total);
      const size_t cell = size_t{run.first} + c;
      VisitCell(cache_.k + cell * k_row + size_t{kv_head} * shape_.dim_k,
                cache_.v + cell * v_row + size_t{kv_head} * shape_.dim_v, scratch, group);
    }
    if (position == row.n_positions) break;
  }
  CHECK(position == row.n_positions);
  CloseGroup(scratch, group, total);
  // The softmax's denominator last.
  const float scale = total.weight == 0.0F ? 0.0F : 1.0F / total.weight;
  for (uint32_t d = 0; d < shape_.dim_v; ++d) out[d] = scratch.total[d] * scale;
}

void RowAttention::VisitCell(const Half* k, const Half* v, Scratch& scratch, Sum& sum) const {
  const float score = Dot(k, scratch.query.data()) * scale_;
  float shrink = 1.0F;
  float weight = 1.0F;
  if (score > sum.largest) {  // all that was summed so far weighs less
    shrink = std::exp(sum.largest - score);
    sum.largest = score;
    half_.scale(scratch.group.data(), shrink, shape_.dim_v);
  } else {
    weight = std::exp(score - sum.largest);
  }
  half_.add_scaled(scratch.group.data(), v, weight, shape_.dim_v);
  sum.weight = std::fma(sum.weight, shrink, weight);  // as ggml's build for this machine does
}

// Adds a group to the total and starts the next one.
void RowAttention::CloseGroup(Scratch& scratch, Sum& group, Sum& total) const {
  if (group.weight == 0.0F) return;
  const float largest = std::max(total.largest, group.largest);
  const float old_share = std::exp(total.largest - largest);
  const float new_share = std::exp(group.largest - largest);
  for (uint32_t d = 0; d < shape_.dim_v; ++d) {
    const float value = ggml_fp16_to_fp32(scratch.group[d]);
    scratch.total[d] = scratch.total[d] * old_share + value * new_share;
  }
  total = {.largest = largest, .weight = total.weight * old_share + group.weight * new_share};
  group = {.largest = kMinusInfinity, .weight = 0.0F};
  std::ranges::fill(scratch.group, Half{0});
}

float RowAttention::Dot(const Half* a, const Half* b) const {
  float sum = 0.0F;
  if (dot_ != nullptr) {
    dot_(static_cast<int>(shape_.dim_k), &sum, 0, a, 0, b, 0, 1);
    return sum;
  }
  for (uint32_t i = 0; i < shape_.dim_k; ++i) {
    sum += ggml_fp16_to_fp32(a[i]) * ggml_fp16_to_fp32(b[i]);
  }
  return sum;
}

}  // namespace moestro
