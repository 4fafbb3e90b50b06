// SPDX-License-Identifier: MIT
#include "forward/dense/position_indexer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"

namespace moestro {

Result<std::unique_ptr<PositionIndexer>> PositionIndexer::Create(const IndexerSpec& spec,
                                                                 KvType kv_type, uint32_t n_ctx,
                                                                 uint32_t threads,
                                                                 StopSignal* stop) {
  std::unique_ptr<PositionIndexer> indexer(new PositionIndexer(spec, kv_type, stop));
  TRY_STATUS(indexer->Allocate(n_ctx, threads));
  return indexer;
}

Status PositionIndexer::Allocate(uint32_t n_ctx, uint32_t threads) {
  TRY(product_, FindExpertKernel(GGML_TYPE_F32));
  const size_t key_bytes = product_.activation_bytes(spec_.head_dim);
  for (uint32_t t = 0; t < threads; ++t) {
    Scratch s{.scores = std::vector<float>(n_ctx),
              .order = std::vector<uint32_t>(n_ctx),
              .cells = std::vector<uint32_t>(n_ctx),
              .key = std::vector<float>(spec_.head_dim),
              .products = std::vector<float>(size_t{kKeys} * spec_.n_head),
              .activations = {}};
    TRY(s.activations, HostMemory::Allocate(kKeys * key_bytes));
    scratch_.push_back(std::move(s));
  }
  thread_bytes_ = uint64_t{n_ctx} * (sizeof(float) + 2 * sizeof(uint32_t)) +
                  (spec_.head_dim + size_t{kKeys} * spec_.n_head) * sizeof(float) +
                  kKeys * key_bytes;
  return {};
}

ggml_tensor* PositionIndexer::Node(ggml_context* ctx, ggml_tensor* queries, ggml_tensor* weights,
                                   const Rows& rows) {
  CHECK(queries->type == GGML_TYPE_F32 && ggml_is_contiguous(queries));
  CHECK(queries->ne[0] == spec_.head_dim && queries->ne[1] == spec_.n_head);
  CHECK(weights->type == GGML_TYPE_F32 && weights->ne[0] == spec_.n_head);
  rows_ = rows;
  next_row_.store(0, std::memory_order_relaxed);
  std::array<ggml_tensor*, 2> args = {queries, weights};
  const auto call = [](ggml_tensor* result, int thread, int /*n_threads*/, void* userdata) {
    auto* self = static_cast<PositionIndexer*>(userdata);
    self->Work(result, self->scratch_[static_cast<size_t>(thread)]);
  };
  return ggml_custom_4d(ctx, GGML_TYPE_I32, 1, 1, 1, 1, args.data(), static_cast<int>(args.size()),
                        call, GGML_N_TASKS_MAX, this);
}

void PositionIndexer::Work(const ggml_tensor* result, Scratch& s) {
  for (;;) {
    const uint32_t row = next_row_.fetch_add(1, std::memory_order_relaxed);
    if (row >= rows_.visible.size() || ShallStop()) return;
    if (!rows_.chosen->is_chosen(rows_.visible[row])) continue;
    Score(result, row, s);
    Choose(row, s);
  }
}

// scores [position]: blocks of keys times all heads' queries.
void PositionIndexer::Score(const ggml_tensor* result, uint32_t row, Scratch& s) const {
  const ggml_tensor* queries = result->src[0];
  const ggml_tensor* weights = result->src[1];
  const auto* q = static_cast<const std::byte*>(queries->data) + row * queries->nb[2];
  const auto* w = reinterpret_cast<const float*>(static_cast<const std::byte*>(weights->data) +
                                                 row * weights->nb[1]);
  const uint32_t n = rows_.visible[row].n_positions;
  uint32_t at = 0;
  for (const CellRun& run : rows_.visible[row].runs) {
    for (uint32_t i = 0; i < run.count && at < n; ++i) s.cells[at++] = run.first + i;
  }
  CHECK(at == n);
  const AttentionKernel::ToFloat to_float = kernel_.to_float(kv_type_);
  const size_t cell_bytes = KvBytes(kv_type_, spec_.head_dim);
  const size_t key_bytes = product_.activation_bytes(spec_.head_dim);
  std::array<const std::byte*, kKeys> keys{};
  std::array<float*, kKeys> out{};
  for (uint32_t p = 0; p < n && !ShallStop(); p += kKeys) {
    const uint32_t count = std::min(kKeys, n - p);
    for (uint32_t i = 0; i < count; ++i) {
      to_float(rows_.keys + s.cells[p + i] * cell_bytes, s.key.data(), spec_.head_dim);
      std::byte* key = s.activations.data() + i * key_bytes;
      product_.quantise(product_, s.key.data(), key, spec_.head_dim);
      keys[i] = key;
      out[i] = s.products.data() + size_t{i} * spec_.n_head;
    }
    product_.multiply(product_, {.rows = q,
                                 .row_bytes = queries->nb[1],
                                 .n_in = spec_.head_dim,
                                 .n_rows = spec_.n_head,
                                 .activations = keys.data(),
                                 .out = out.data(),
                                 .n_tokens = count});
    for (uint32_t i = 0; i < count; ++i) {
      float score = 0.0F;
      for (uint32_t h = 0; h < spec_.n_head; ++h) score += w[h] * std::max(out[i][h], 0.0F);
      // What is no number has no order; it is chosen, and attention finds out.
      s.scores[p + i] = std::isnan(score) ? std::numeric_limits<float>::infinity() : score;
    }
  }
}

void PositionIndexer::Choose(uint32_t row, Scratch& s) const {
  const uint32_t n = rows_.visible[row].n_positions;
  const std::span<CellRun> runs = rows_.chosen->runs(rows_.first + row);
  const auto begin = s.order.begin();
  const auto chosen = begin + static_cast<ptrdiff_t>(runs.size());
  std::iota(begin, begin + n, 0U);
  std::nth_element(begin, chosen, begin + n, [&](uint32_t a, uint32_t b) {
    return s.scores[a] != s.scores[b] ? s.scores[a] > s.scores[b] : a < b;
  });
  std::sort(begin, chosen);
  for (size_t i = 0; i < runs.size(); ++i) runs[i] = {.first = s.cells[s.order[i]], .count = 1};
}

}  // namespace moestro
