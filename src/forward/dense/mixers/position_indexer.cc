// SPDX-License-Identifier: MIT
#include "forward/dense/mixers/position_indexer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/number.h"

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
  most_pools_ = rule_.Pools(n_ctx);
  const std::array<size_t, 6> bytes = {size_t{spec_.n_choices()} * most_pools_ * sizeof(float),
                                       size_t{most_pools_} * sizeof(uint32_t),
                                       size_t{n_ctx} * sizeof(uint32_t),
                                       spec_.head_dim * sizeof(float),
                                       size_t{kKeys} * spec_.n_head * sizeof(float),
                                       kKeys * product_.activation_bytes(spec_.head_dim)};
  constexpr size_t kAlignment = 64;
  for (const size_t n : bytes) thread_bytes_ += AlignUp(n, kAlignment);
  TRY(memory_, HostMemory::Allocate(thread_bytes_ * threads));
  std::byte* at = memory_.data();
  for (uint32_t t = 0; t < threads; ++t) {
    std::array<std::byte*, 6> parts{};
    for (size_t i = 0; i < parts.size(); ++i) {
      parts[i] = at;
      at += AlignUp(bytes[i], kAlignment);
    }
    scratch_.push_back({.scores = reinterpret_cast<float*>(parts[0]),
                        .order = reinterpret_cast<uint32_t*>(parts[1]),
                        .cells = reinterpret_cast<uint32_t*>(parts[2]),
                        .key = reinterpret_cast<float*>(parts[3]),
                        .products = reinterpret_cast<float*>(parts[4]),
                        .activations = parts[5]});
  }
  return {};
}

void PositionIndexer::Bind(const Rows& rows) {
  rows_ = rows;
  next_row_.store(0, std::memory_order_relaxed);
}

ggml_tensor* PositionIndexer::Node(ggml_context* ctx, ggml_tensor* queries, ggml_tensor* weights) {
  CHECK(queries->type == GGML_TYPE_F32 && ggml_is_contiguous(queries));
  CHECK(queries->ne[0] == spec_.head_dim && queries->ne[1] == spec_.n_head);
  CHECK(weights == nullptr || (weights->type == GGML_TYPE_F32 && weights->ne[0] == spec_.n_head));
  std::array<ggml_tensor*, 2> args = {queries, weights};
  const int n_args = weights != nullptr ? 2 : 1;
  const auto call = [](ggml_tensor* result, int thread, int /*n_threads*/, void* userdata) {
    auto* self = static_cast<PositionIndexer*>(userdata);
    self->Work(result, self->scratch_[static_cast<size_t>(thread)]);
  };
  return ggml_custom_4d(ctx, GGML_TYPE_I32, 1, 1, 1, 1, args.data(), n_args, call, GGML_N_TASKS_MAX,
                        this);
}

void PositionIndexer::Work(const ggml_tensor* result, const Scratch& s) {
  for (;;) {
    const uint32_t row = next_row_.fetch_add(1, std::memory_order_relaxed);
    if (row >= rows_.visible.size() || ShallStop()) return;
    if (!rows_.chosen->is_chosen(rows_.visible[row])) continue;
    if (!Score(result, row, s)) rows_.chosen->SayDamaged();
    for (uint32_t choice = 0; choice < spec_.n_choices(); ++choice) Choose(row, choice, s);
  }
}

// scores [choice][pool]: blocks of keys times all heads' queries. False: some scores are NaN or
// infinite, and count as 0.
bool PositionIndexer::Score(const ggml_tensor* result, uint32_t row, const Scratch& s) const {
  const ggml_tensor* queries = result->src[0];
  const ggml_tensor* weights = result->src[1];
  const auto* q = static_cast<const std::byte*>(queries->data) + row * queries->nb[2];
  const auto* w = weights == nullptr
                      ? nullptr
                      : reinterpret_cast<const float*>(
                            static_cast<const std::byte*>(weights->data) + row * weights->nb[1]);
  const uint32_t n_positions = rows_.visible[row].n_positions;
  uint32_t at = 0;
  for (const CellRun& run : rows_.visible[row].runs) {
    for (uint32_t i = 0; i < run.count && at < n_positions; ++i) s.cells[at++] = run.first + i;
  }
  CHECK(at == n_positions);
  const uint32_t n = scores_positions() ? rule_.Tail(n_positions) : rule_.Pools(n_positions);
  // The key of a pool lies in the cell of its last position.
  const auto cell_of = [&](uint32_t i) {
    return s.cells[scores_positions() ? i : (i + 1) * spec_.n_pool - 1];
  };
  const AttentionKernel::ToFloat to_float = kernel_.to_float(kv_type_);
  const size_t key_bytes = product_.activation_bytes(spec_.head_dim);
  std::array<const std::byte*, kKeys> keys{};
  std::array<float*, kKeys> out{};
  bool is_sound = true;
  for (uint32_t p = 0; p < n && !ShallStop(); p += kKeys) {
    const uint32_t count = std::min(kKeys, n - p);
    for (uint32_t i = 0; i < count; ++i) {
      to_float(rows_.keys + cell_of(p + i) * rows_.cell_bytes, s.key, spec_.head_dim);
      std::byte* key = s.activations + i * key_bytes;
      product_.quantise(product_, s.key, key, spec_.head_dim);
      keys[i] = key;
      out[i] = s.products + size_t{i} * spec_.n_head;
    }
    product_.multiply(product_, {.rows = q,
                                 .row_bytes = queries->nb[1],
                                 .n_in = spec_.head_dim,
                                 .n_rows = spec_.n_head,
                                 .activations = keys.data(),
                                 .out = out.data(),
                                 .n_tokens = count});
    for (uint32_t i = 0; i < count; ++i) {
      if (scores_positions()) {
        is_sound = ScorePosition(p + i, out[i], s.scores) && is_sound;
        continue;
      }
      const float score = ScoreOfPool(out[i], w);
      is_sound = is_sound && std::isfinite(score);
      s.scores[p + i] = std::isfinite(score) ? score : 0.0F;
    }
  }
  return is_sound;
}

// products [n_head]: of the pool's key. weights [n_head], or null for equal ones.
float PositionIndexer::ScoreOfPool(const float* products, const float* weights) const {
  float score = 0.0F;
  for (uint32_t h = 0; h < spec_.n_head; ++h) {
    score += (weights != nullptr ? weights[h] : 1.0F) * std::max(products[h], 0.0F);
  }
  return score;
}

// products [n_head]: of the position's key. A pool has the largest score of the positions so far,
// which come in order. False: as Score().
bool PositionIndexer::ScorePosition(uint32_t position, const float* products, float* scores) const {
  const bool is_first = position % spec_.n_pool == 0;
  bool is_sound = true;
  for (uint32_t h = 0; h < spec_.n_head; ++h) {
    is_sound = is_sound && std::isfinite(products[h]);
    const float score = std::isfinite(products[h]) ? products[h] : 0.0F;
    float& most = scores[size_t{h} * most_pools_ + position / spec_.n_pool];
    most = is_first ? score : std::max(most, score);
  }
  return is_sound;
}

void PositionIndexer::Choose(uint32_t row, uint32_t choice, const Scratch& s) const {
  const RowCells& visible = rows_.visible[row];
  const float* scores = s.scores + size_t{choice} * most_pools_;
  const uint32_t n = rule_.Pools(visible.n_positions);
  uint32_t* const begin = s.order;
  uint32_t* const chosen = begin + rule_.n_chosen;
  std::iota(begin, begin + n, 0U);
  std::nth_element(begin, chosen, begin + n, [&](uint32_t a, uint32_t b) {
    return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
  });
  std::sort(begin, chosen);
  auto run = rows_.chosen->runs(rows_.first + row, choice, visible).begin();
  for (const uint32_t* pool = begin; pool != chosen; ++pool) {
    for (uint32_t i = 0; i < spec_.n_pool; ++i) {
      *run++ = {.first = s.cells[*pool * spec_.n_pool + i], .count = 1};
    }
  }
  for (uint32_t p = rule_.Tail(visible.n_positions); p < visible.n_positions; ++p) {
    *run++ = {.first = s.cells[p], .count = 1};
  }
}

}  // namespace moestro
