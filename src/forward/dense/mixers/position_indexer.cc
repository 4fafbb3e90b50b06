// SPDX-License-Identifier: MIT
#include "forward/dense/mixers/position_indexer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <span>

#include "base/number.h"

namespace moestro {

// Finds the cells of a row's positions, which are asked for in ascending order.
class PositionIndexer::CellsInOrder {
 public:
  explicit CellsInOrder(const RowCells& row) : runs_(row.runs) {}

  uint32_t At(uint32_t position) {
    for (; !runs_.empty(); runs_ = runs_.subspan(1)) {
      const CellRun& run = runs_.front();
      if (position - before_ < run.count) return run.first + position - before_;
      before_ += run.count;
    }
    CHECK(false);
    return 0;
  }

 private:
  std::span<const CellRun> runs_;
  uint32_t before_ = 0;  // positions in earlier runs
};

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
  // Some microseconds, so that taking a piece costs next to nothing.
  constexpr uint32_t kFewest = 128;
  const uint32_t unit = std::lcm(kKeys, scores_positions() ? spec_.n_pool : 1);
  piece_keys_ = (kFewest + unit - 1) / unit * unit;
  shared_ = std::vector<SharedRow>(threads);
  const std::array<size_t, 5> bytes = {size_t{spec_.n_choices()} * most_pools_ * sizeof(float),
                                       size_t{most_pools_} * sizeof(uint32_t),
                                       spec_.head_dim * sizeof(float),
                                       size_t{kKeys} * spec_.n_head * sizeof(float),
                                       kKeys * product_.activation_bytes(spec_.head_dim)};
  constexpr size_t kAlignment = 64;
  for (const size_t n : bytes) thread_bytes_ += AlignUp(n, kAlignment);
  TRY(memory_, HostMemory::Allocate(thread_bytes_ * threads));
  std::byte* at = memory_.data();
  for (uint32_t t = 0; t < threads; ++t) {
    std::array<std::byte*, bytes.size()> parts{};
    for (size_t i = 0; i < parts.size(); ++i) {
      parts[i] = at;
      at += AlignUp(bytes[i], kAlignment);
    }
    scratch_.push_back({.scores = reinterpret_cast<float*>(parts[0]),
                        .order = reinterpret_cast<uint32_t*>(parts[1]),
                        .key = reinterpret_cast<float*>(parts[2]),
                        .products = reinterpret_cast<float*>(parts[3]),
                        .activations = parts[4]});
  }
  return {};
}

// Keys of a row that have a score.
uint32_t PositionIndexer::KeysOf(const RowCells& row) const {
  return scores_positions() ? rule_.Tail(row.n_positions) : rule_.Pools(row.n_positions);
}

void PositionIndexer::Bind(const Rows& rows) {
  rows_ = rows;
  next_task_.store(0, std::memory_order_relaxed);
  n_shared_ = 0;
  uint32_t n_tasks = 0;
  for (uint32_t row = 0; row < rows.visible.size(); ++row) {
    if (!rows.chosen->is_chosen(rows.visible[row])) continue;
    if (n_shared_ == shared_.size()) {
      n_shared_ = 0;
      return;
    }
    const uint32_t pieces = (KeysOf(rows.visible[row]) + piece_keys_ - 1) / piece_keys_;
    n_tasks += pieces;
    SharedRow& shared = shared_[n_shared_++];
    shared.row = row;
    shared.end_task = n_tasks;
    shared.left.store(pieces, std::memory_order_relaxed);
  }
}

ggml_tensor* PositionIndexer::Node(ggml_context* ctx, ggml_tensor* queries, ggml_tensor* weights) {
  CHECK(queries->type == GGML_TYPE_F32 && ggml_is_contiguous(queries));
  CHECK(queries->ne[0] == spec_.head_dim && queries->ne[1] == spec_.n_head);
  CHECK(weights == nullptr || (weights->type == GGML_TYPE_F32 && weights->ne[0] == spec_.n_head));
  std::array<ggml_tensor*, 2> args = {queries, weights};
  const int n_args = weights != nullptr ? 2 : 1;
  const auto call = [](ggml_tensor* result, int thread, int /*n_threads*/, void* userdata) {
    auto* self = static_cast<PositionIndexer*>(userdata);
    const Scratch& s = self->scratch_[static_cast<size_t>(thread)];
    self->n_shared_ > 0 ? self->TakePieces(result, s) : self->TakeRows(result, s);
  };
  return ggml_custom_4d(ctx, GGML_TYPE_I32, 1, 1, 1, 1, args.data(), n_args, call, GGML_N_TASKS_MAX,
                        this);
}

void PositionIndexer::TakeRows(const ggml_tensor* result, const Scratch& s) {
  for (;;) {
    const uint32_t row = next_task_.fetch_add(1, std::memory_order_relaxed);
    if (row >= rows_.visible.size() || ShallStop()) return;
    const RowCells& visible = rows_.visible[row];
    if (!rows_.chosen->is_chosen(visible)) continue;
    CellsInOrder cells(visible);
    Score(result, {.row = row, .begin = 0, .end = KeysOf(visible)}, cells, s, s.scores);
    Choose(row, s.scores, s.order);
  }
}

// Pieces come in order of rows and keys. A row's choice is made by the thread that ends the last of
// its pieces, to which the scores of all pieces are visible.
void PositionIndexer::TakePieces(const ggml_tensor* result, const Scratch& s) {
  uint32_t n = 0;  // of the shared row
  uint32_t first_task = 0;
  CellsInOrder cells(rows_.visible[shared_.front().row]);
  for (;;) {
    const uint32_t task = next_task_.fetch_add(1, std::memory_order_relaxed);
    if (task >= shared_[n_shared_ - 1].end_task || ShallStop()) return;
    while (task >= shared_[n].end_task) {
      first_task = shared_[n++].end_task;
      cells = CellsInOrder(rows_.visible[shared_[n].row]);
    }
    SharedRow& shared = shared_[n];
    const uint32_t begin = (task - first_task) * piece_keys_;
    const uint32_t end = std::min(begin + piece_keys_, KeysOf(rows_.visible[shared.row]));
    float* scores = scratch_[n].scores;
    Score(result, {.row = shared.row, .begin = begin, .end = end}, cells, s, scores);
    const bool is_last = shared.left.fetch_sub(1, std::memory_order_acq_rel) == 1;
    if (is_last) Choose(shared.row, scores, s.order);
  }
}

// scores [choice][pool], those of the piece: blocks of keys times all heads' queries. Scores that
// are NaN or infinite count as 0.
void PositionIndexer::Score(const ggml_tensor* result, const Piece& piece, CellsInOrder& cells,
                            const Scratch& s, float* scores) const {
  const ggml_tensor* queries = result->src[0];
  const ggml_tensor* weights = result->src[1];
  const auto* q = static_cast<const std::byte*>(queries->data) + piece.row * queries->nb[2];
  const auto* w =
      weights == nullptr
          ? nullptr
          : reinterpret_cast<const float*>(static_cast<const std::byte*>(weights->data) +
                                           piece.row * weights->nb[1]);
  const AttentionKernel::ToFloat to_float = kernel_.to_float(kv_type_);
  const size_t key_bytes = product_.activation_bytes(spec_.head_dim);
  std::array<const std::byte*, kKeys> keys{};
  std::array<float*, kKeys> out{};
  bool is_sound = true;
  for (uint32_t p = piece.begin; p < piece.end && !ShallStop(); p += kKeys) {
    const uint32_t count = std::min(kKeys, piece.end - p);
    for (uint32_t i = 0; i < count; ++i) {
      // The key of a pool lies in the cell of its last position.
      const uint32_t position = scores_positions() ? p + i : (p + i + 1) * spec_.n_pool - 1;
      to_float(rows_.keys + cells.At(position) * rows_.cell_bytes, s.key, spec_.head_dim);
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
        is_sound = ScorePosition(p + i, out[i], scores) && is_sound;
        continue;
      }
      const float score = ScoreOfPool(out[i], w);
      is_sound = is_sound && std::isfinite(score);
      scores[p + i] = std::isfinite(score) ? score : 0.0F;
    }
  }
  if (!is_sound) rows_.chosen->SayDamaged();
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
// which come in order. False: a score is NaN or infinite.
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

// scores [choice][pool], order [pool]: scratch memory.
void PositionIndexer::Choose(uint32_t row, const float* scores, uint32_t* order) const {
  const RowCells& visible = rows_.visible[row];
  const uint32_t n = rule_.Pools(visible.n_positions);
  uint32_t* const chosen = order + rule_.n_chosen;
  for (uint32_t choice = 0; choice < spec_.n_choices(); ++choice, scores += most_pools_) {
    std::iota(order, order + n, 0U);
    std::nth_element(order, chosen, order + n, [&](uint32_t a, uint32_t b) {
      return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
    });
    std::sort(order, chosen);
    CellsInOrder cells(visible);
    auto run = rows_.chosen->runs(rows_.first + row, choice, visible).begin();
    for (const uint32_t* pool = order; pool != chosen; ++pool) {
      for (uint32_t i = 0; i < spec_.n_pool; ++i) {
        *run++ = {.first = cells.At(*pool * spec_.n_pool + i), .count = 1};
      }
    }
    for (uint32_t p = rule_.Tail(visible.n_positions); p < visible.n_positions; ++p) {
      *run++ = {.first = cells.At(p), .count = 1};
    }
  }
}

}  // namespace moestro
