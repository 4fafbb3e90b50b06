// SPDX-License-Identifier: MIT
#include "forward/dense/attention.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numbers>
#include <numeric>

#include "base/bytes.h"
#include "base/check.h"
#include "memory/recent_cells.h"

namespace moestro {
namespace {

constexpr uint32_t kKeys = AttentionKernel::kKeys;
constexpr uint32_t kWeightLanes = AttentionKernel::kMaxLanes;
static_assert(RecentRoom::kAlignment % kKeys == 0);  // a row's cells begin with a block
constexpr size_t kAlignment = 64;
// Queries of a tile: enough that converting a block of keys and values is a tenth of the work on
// it, few enough that everything stays in the second-level cache (300 KiB with heads of 128).
constexpr uint32_t kTileQueries = 128;
// Heads of a part, at least: with fewer, converting keys would take longer than looking at them.
constexpr uint32_t kLeastPart = 4;

// Which cells hold a sequence's positions from `position` on.
class CellCursor {
 public:
  CellCursor(const RowCells& row, uint32_t position)
      : runs_(row.runs), skipped_(position - row.first) {
    while (!runs_.empty() && skipped_ >= runs_.front().count) Next();
  }
  // REQUIRES: there is one.
  size_t Take() {
    const size_t cell = size_t{runs_.front().first} + skipped_;
    if (++skipped_ == runs_.front().count) Next();
    return cell;
  }

 private:
  void Next() {
    skipped_ -= runs_.front().count;
    runs_ = runs_.subspan(1);
  }
  std::span<const CellRun> runs_;
  uint32_t skipped_;  // cells of the first run
};

void AskFor(const std::byte* values, size_t bytes) {
  constexpr size_t kLine = 64;
  for (size_t i = 0; i < bytes; i += kLine) __builtin_prefetch(values + i, 0, 2);
}

}  // namespace

AttentionShape AttentionShape::Of(const AttentionSpec& spec, KvType kv_type) {
  return {.n_head = spec.n_head,
          .n_head_kv = spec.n_head_kv,
          .dim_k = spec.head_dim_k,
          .dim_v = spec.head_dim_v,
          .window = spec.window,
          .kv_type = kv_type};
}

AttentionShape AttentionShape::Of(const LatentAttentionSpec& spec, KvType kv_type) {
  return {.n_head = spec.n_head,
          .n_head_kv = 1,
          .dim_k = spec.n_key(),
          .dim_v = spec.n_latent,
          .kv_type = kv_type,
          .values_in_keys = true};
}

TiledAttention::TiledAttention(const AttentionShape& shape, uint32_t threads,
                               const AttentionKernel& kernel, StopSignal* stop)
    : shape_(shape),
      kernel_(kernel),
      stop_(stop),
      group_(shape.n_head / shape.n_head_kv),
      parts_(std::min((threads + shape.n_head_kv - 1) / shape.n_head_kv,
                      std::max(1U, group_ / kLeastPart))),
      part_heads_((group_ + parts_ - 1) / parts_),
      tile_rows_(std::max(1U, kTileQueries / part_heads_)),
      sums_width_(kernel.padded(shape.dim_v)),
      // A vector more than it takes: rows a power of two apart would share few places in a cache.
      key_stride_(AlignUp(shape.dim_k, kWeightLanes) + kWeightLanes),
      value_stride_(sums_width_ + kWeightLanes) {}

Result<std::unique_ptr<TiledAttention>> TiledAttention::Create(const AttentionShape& shape,
                                                               uint32_t threads,
                                                               const AttentionKernel& kernel,
                                                               StopSignal* stop) {
  std::unique_ptr<TiledAttention> attention(new TiledAttention(shape, threads, kernel, stop));
  TRY_STATUS(attention->Allocate(threads));
  return attention;
}

Status TiledAttention::Allocate(uint32_t threads) {
  const size_t queries = size_t{tile_rows_} * part_heads_;
  const std::array<size_t, 9> floats = {queries * shape_.dim_k,
                                        queries * kKeys,
                                        queries,
                                        queries * kWeightLanes,
                                        queries * sums_width_,
                                        kKeys * key_stride_,
                                        size_t{kKeys} * shape_.dim_k,
                                        shape_.values_in_keys ? 0 : kKeys * value_stride_,
                                        queries * sizeof(KeyRange) / sizeof(float)};
  const auto bytes_of = [](size_t n) { return AlignUp(n * sizeof(float), kAlignment); };
  thread_bytes_ = std::accumulate(floats.begin(), floats.end(), uint64_t{0},
                                  [&](uint64_t sum, size_t n) { return sum + bytes_of(n); });
  TRY(memory_, HostMemory::Allocate(thread_bytes_ * threads));
  std::byte* at = memory_.data();
  for (uint32_t thread = 0; thread < threads; ++thread) {
    std::array<float*, 9> parts{};
    for (size_t i = 0; i < parts.size(); ++i) {
      parts[i] = reinterpret_cast<float*>(at);
      at += bytes_of(floats[i]);
    }
    scratch_.push_back({.queries = parts[0],
                        .scores = parts[1],
                        .largest = parts[2],
                        .weights = parts[3],
                        .sums = parts[4],
                        .keys = parts[5],
                        .turned = parts[6],
                        .values = parts[7],
                        .ranges = reinterpret_cast<KeyRange*>(parts[8])});
  }
  return {};
}

ggml_tensor* TiledAttention::Node(ggml_context* ctx, ggml_tensor* q, const Layer& layer,
                                  std::span<const RowCells> rows) {
  CHECK(q->type == GGML_TYPE_F32 && ggml_is_contiguous(q));
  CHECK(q->ne[0] == shape_.dim_k && q->ne[1] == shape_.n_head);
  CHECK(static_cast<size_t>(q->ne[2]) == rows.size());
  CHECK(layer.sinks.empty() || layer.sinks.size() == shape_.n_head);
  layer_ = layer;
  rows_ = rows;
  CutTiles();
  next_task_.store(0, std::memory_order_relaxed);
  std::array<ggml_tensor*, 1> args = {q};
  const auto call = [](ggml_tensor* result, int thread, int /*n_threads*/, void* userdata) {
    auto* self = static_cast<TiledAttention*>(userdata);
    self->Work(result, self->scratch_[static_cast<size_t>(thread)]);
  };
  return ggml_custom_4d(ctx, GGML_TYPE_F32, int64_t{shape_.n_head} * shape_.dim_v, q->ne[2], 1, 1,
                        args.data(), static_cast<int>(args.size()), call, GGML_N_TASKS_MAX, this);
}

uint32_t TiledAttention::first_position(const RowCells& row) const {
  const bool is_limited = layer_.window > 0 && row.n_positions > layer_.window;
  return is_limited ? row.n_positions - layer_.window : 0;
}

void TiledAttention::CutTiles() {
  tiles_.clear();
  for (uint32_t r = 0; r < rows_.size(); ++r) {
    const RowCells& row = rows_[r];
    const bool joins = !tiles_.empty() && tiles_.back().count < tile_rows_ &&
                       rows_[r - 1].runs.data() == row.runs.data();
    if (!joins) {
      tiles_.push_back({.first = r, .begin = first_position(row), .end = row.n_positions});
    }
    Tile& tile = tiles_.back();
    ++tile.count;
    tile.begin = std::min(tile.begin, first_position(row));
    tile.end = std::max(tile.end, row.n_positions);
  }
  // The longest first, so that threads end together.
  std::ranges::stable_sort(tiles_, std::greater{},
                           [](const Tile& t) { return (t.end - t.begin) * t.count; });
}

void TiledAttention::Work(ggml_tensor* result, Scratch& s) {
  const auto* q = static_cast<const float*>(result->src[0]->data);
  auto* out = static_cast<float*>(result->data);
  const uint32_t n_parts = shape_.n_head_kv * parts_;
  const auto n_tasks = static_cast<uint32_t>(tiles_.size()) * n_parts;
  for (;;) {
    const uint32_t task = next_task_.fetch_add(1, std::memory_order_relaxed);
    if (task >= n_tasks || ShallStop()) return;
    Attend(tiles_[task / n_parts], PartOf(task % n_parts), q, out, s);
  }
}

TiledAttention::HeadPart TiledAttention::PartOf(uint32_t number) const {
  const uint32_t kv_head = number / parts_;
  const uint32_t begin = std::min(number % parts_ * part_heads_, group_);
  return {.kv_head = kv_head,
          .first = kv_head * group_ + begin,
          .count = std::min(part_heads_, group_ - begin)};
}

// softmax(scale * Q K) V for a tile's rows and heads that share a key-value head.
void TiledAttention::Attend(const Tile& tile, const HeadPart& heads, const float* q, float* out,
                            Scratch& s) const {
  if (heads.count == 0) return;
  Begin(tile, heads, q, s);
  for (uint32_t p = tile.begin / kKeys * kKeys; p < tile.end && !ShallStop(); p += kKeys) {
    LoadBlock(tile, heads.kv_head, p, s);
    AttendBlock(tile, heads.count, p, s);
  }
  End(tile, heads, out, s);
}

// q [rows][n_head][dim_k] -> queries [row of the tile][head of the part][dim_k], scaled.
void TiledAttention::Begin(const Tile& tile, const HeadPart& heads, const float* q,
                           Scratch& s) const {
  const size_t queries = size_t{tile.count} * heads.count;
  const float scale = layer_.scale * std::numbers::log2e_v<float>;
  for (uint32_t r = 0; r < tile.count; ++r) {
    const size_t row = size_t{tile.first} + r;
    const float* from = q + (row * shape_.n_head + heads.first) * shape_.dim_k;
    float* to = s.queries + size_t{r} * heads.count * shape_.dim_k;
    for (size_t i = 0; i < size_t{heads.count} * shape_.dim_k; ++i) to[i] = from[i] * scale;
  }
  std::fill_n(s.sums, queries * sums_width_, 0.0F);
  std::fill_n(s.weights, queries * kWeightLanes, 0.0F);
  std::fill_n(s.largest, queries, -std::numeric_limits<float>::infinity());
  if (layer_.sinks.empty()) return;
  for (size_t i = 0; i < queries; ++i) {
    const size_t head = heads.first + i % heads.count;
    s.largest[i] = layer_.sinks[head] * std::numbers::log2e_v<float>;
    s.weights[i * kWeightLanes] = 1.0F;
  }
}

// Keys and values of positions [position, position + kKeys), as far as the tile visits them. A head
// has a few lines of each cell, an order that no hardware prefetcher follows: the next block is
// asked for meanwhile (behind 8192 positions the best token came at 8.4 a second, 7.3 without).
void TiledAttention::LoadBlock(const Tile& tile, uint32_t kv_head, uint32_t position,
                               Scratch& s) const {
  const AttentionKernel::ToFloat to_float = kernel_.to_float(shape_.kv_type);
  const size_t k_bytes = KvBytes(shape_.kv_type, shape_.dim_k);
  const size_t v_bytes = KvBytes(shape_.kv_type, shape_.dim_v);
  const size_t k_row = shape_.n_head_kv * k_bytes;
  const size_t v_row = shape_.n_head_kv * v_bytes;
  const std::byte* k = layer_.k + kv_head * k_bytes;
  const bool has_values = !shape_.values_in_keys;
  const std::byte* v = has_values ? layer_.v + kv_head * v_bytes : nullptr;
  const uint32_t count = std::min(kKeys, tile.end - position);
  const uint32_t next_count = std::min(kKeys, tile.end - position - count);
  const RowCells& row = rows_[tile.first];
  CHECK(position >= row.first);
  CellCursor cells(row, position);
  CellCursor next(row, position + count);
  for (uint32_t i = 0; i < count; ++i) {
    const size_t cell = cells.Take();
    to_float(k + cell * k_row, s.keys + i * key_stride_, shape_.dim_k);
    if (has_values) to_float(v + cell * v_row, s.values + i * value_stride_, shape_.dim_v);
    if (i >= next_count) continue;
    const size_t later = next.Take();
    AskFor(k + later * k_row, k_bytes);
    if (has_values) AskFor(v + later * v_row, v_bytes);
  }
  kernel_.turn(s.keys, key_stride_, shape_.dim_k, s.turned);
}

void TiledAttention::AttendBlock(const Tile& tile, uint32_t n_heads, uint32_t position,
                                 Scratch& s) const {
  // What each row sees of the block.
  for (uint32_t r = 0; r < tile.count; ++r) {
    const RowCells& row = rows_[size_t{tile.first} + r];
    const auto within = [&](uint32_t p) {
      return std::clamp(p, position, position + kKeys) - position;
    };
    const KeyRange range{.begin = within(first_position(row)), .end = within(row.n_positions)};
    std::fill_n(s.ranges + size_t{r} * n_heads, n_heads, range);
  }
  // Rows at either end that see nothing are left out: with causal rows, those before the block.
  const uint32_t n_queries = tile.count * n_heads;
  uint32_t first = 0;
  uint32_t last = n_queries;
  while (first < last && s.ranges[first].is_empty()) ++first;
  while (last > first && s.ranges[last - 1].is_empty()) --last;
  kernel_.attend({.queries = s.queries + size_t{first} * shape_.dim_k,
                  .ranges = s.ranges + first,
                  .n_queries = last - first,
                  .dim_k = shape_.dim_k,
                  .dim_v = sums_width_,
                  .keys = s.turned,
                  .values = shape_.values_in_keys ? s.keys : s.values,
                  .value_stride = shape_.values_in_keys ? key_stride_ : value_stride_,
                  .scores = s.scores + size_t{first} * kKeys,
                  .largest = s.largest + first,
                  .weights = s.weights + size_t{first} * kWeightLanes,
                  .sums = s.sums + size_t{first} * sums_width_});
}

// sums / weights -> out [rows][n_head][dim_v]
void TiledAttention::End(const Tile& tile, const HeadPart& heads, float* out,
                         const Scratch& s) const {
  for (uint32_t r = 0; r < tile.count; ++r) {
    const size_t row = size_t{tile.first} + r;
    float* to = out + (row * shape_.n_head + heads.first) * shape_.dim_v;
    for (uint32_t h = 0; h < heads.count; ++h, to += shape_.dim_v) {
      const size_t query = size_t{r} * heads.count + h;
      const float* weights = s.weights + query * kWeightLanes;
      const float weight = std::accumulate(weights, weights + kWeightLanes, 0.0F);
      const float* sums = s.sums + query * sums_width_;
      // A row sees itself at least, so that no or endless weight comes from damaged scores. The
      // layer's result is NaN then, which ends the step.
      const bool is_sound = weight > 0.0F && weight <= std::numeric_limits<float>::max();
      const float share = is_sound ? 1.0F / weight : std::numeric_limits<float>::quiet_NaN();
      for (uint32_t d = 0; d < shape_.dim_v; ++d) to[d] = sums[d] * share;
    }
  }
}

}  // namespace moestro
