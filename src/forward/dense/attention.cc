// SPDX-License-Identifier: MIT
#include "forward/dense/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "base/number.h"
#include "base/result.h"
#include "compute/attention_kernel.h"
#include "memory/recent_cells.h"

namespace moestro {
namespace {

constexpr int64_t kBlockKeys = AttentionKernel::kKeys;

}  // namespace

uint32_t BucketOf(const RelativeBias& bias, int64_t distance) {
  const uint32_t n = bias.is_two_sided ? bias.n_buckets / 2 : bias.n_buckets;
  const uint32_t side = bias.is_two_sided && distance > 0 ? n : 0;
  const int64_t far = bias.is_two_sided ? std::abs(distance) : std::max<int64_t>(-distance, 0);
  const uint32_t exact = n / 2;
  if (far < exact) return side + static_cast<uint32_t>(far);
  const float ratio = std::log(static_cast<float>(far) / static_cast<float>(exact)) /
                      static_cast<float>(std::log(static_cast<double>(bias.max_distance) / exact));
  const float behind = ratio * static_cast<float>(n - exact);
  const auto bucket = static_cast<uint32_t>(static_cast<float>(exact) + std::floor(behind));
  return side + std::min(bucket, n - 1);
}

// Blocks begin up to a block before the first position and end up to a block behind the last one.
size_t RelativeScores::WidthFor(uint32_t most) {
  return 2 * (size_t{most} + 2 * static_cast<size_t>(kBlockKeys)) + 1;
}

uint64_t RelativeScores::BytesFor(uint32_t n_head, uint32_t most) {
  return WidthFor(most) * n_head * sizeof(float);
}

RelativeScores::RelativeScores(const RelativeBias& bias, const float* of, uint32_t n_head,
                               uint32_t most)
    : width_(WidthFor(most)), zero_(int64_t{most} + 2 * kBlockKeys), scores_(width_ * n_head) {
  for (size_t i = 0; i < width_; ++i) {
    const uint32_t bucket = BucketOf(bias, static_cast<int64_t>(i) - zero_);
    for (uint32_t head = 0; head < n_head; ++head) {
      scores_[head * width_ + i] =
          of[size_t{bucket} * n_head + head] * std::numbers::log2e_v<float>;
    }
  }
}

const float* RelativeScores::From(uint32_t head, int64_t distance) const {
  const int64_t at = zero_ + distance;
  CHECK(at >= 0 && static_cast<size_t>(at + kBlockKeys) <= width_);
  return scores_.data() + head * width_ + at;
}

namespace {

constexpr uint32_t kKeys = AttentionKernel::kKeys;
constexpr uint32_t kWeightLanes = AttentionKernel::kMaxLanes;
static_assert(RecentRoom::kAlignment % kKeys == 0);  // a row's cells begin with a block
constexpr size_t kAlignment = 64;

// Finds the cells that hold a sequence's positions from `position` on.
class CellCursor {
 public:
  CellCursor(const RowCells& row, uint32_t position)
      : runs_(row.runs), skipped_(position - row.first) {
    while (!runs_.empty() && skipped_ >= runs_.front().count) Next();
  }
  // REQUIRES: a cell is left.
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
  uint32_t skipped_;  // cells of the first run that are done
};

template <class Running>
void Clear(const Running& running, size_t queries, size_t sums_width) {
  std::fill_n(running.sums, queries * sums_width, 0.0F);
  std::fill_n(running.weights, queries * kWeightLanes, 0.0F);
  std::fill_n(running.largest, queries, -std::numeric_limits<float>::infinity());
}

}  // namespace

AttentionShape AttentionShape::Of(const AttentionSpec& spec, KvType kv_type) {
  return {.n_head = spec.n_head,
          .n_head_kv = spec.n_head_kv,
          .dim_k = spec.head_dim_k,
          .dim_v = spec.head_dim_v,
          .cell_k = spec.chooses() ? spec.n_cell_keys() : 0,
          .n_choices = spec.chooses() ? spec.indexer->n_choices() : 1,
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
                               const AttentionKernel& kernel, StopSignal* stop, TeamTime* time)
    : shape_(shape),
      kernel_(kernel),
      stop_(stop),
      time_(time),
      tasks_(shape.n_head, shape.n_head_kv, threads, shape.n_choices),
      sums_width_(kernel.padded(shape.dim_v)),
      // Strides have one vector to spare: rows a power of two apart would share few places in a
      // cache.
      key_stride_(AlignUp(shape.dim_k, kWeightLanes) + kWeightLanes),
      value_stride_(sums_width_ + kWeightLanes),
      left_(threads > 1 ? tasks_.split_queries() : 0) {}

Result<std::unique_ptr<TiledAttention>> TiledAttention::Create(const AttentionShape& shape,
                                                               uint32_t threads,
                                                               const AttentionKernel& kernel,
                                                               StopSignal* stop, TeamTime* time) {
  std::unique_ptr<TiledAttention> attention(new TiledAttention(shape, threads, kernel, stop, time));
  TRY_STATUS(attention->Allocate(threads));
  return attention;
}

Status TiledAttention::Allocate(uint32_t threads) {
  const size_t queries = tasks_.tile_queries();
  const std::array<size_t, 12> floats = {queries * shape_.dim_k,
                                         queries * kKeys,
                                         queries,
                                         queries * kWeightLanes,
                                         queries * sums_width_,
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
    std::array<float*, floats.size()> parts{};
    for (size_t i = 0; i < parts.size(); ++i) {
      parts[i] = reinterpret_cast<float*>(at);
      at += bytes_of(floats[i]);
    }
    scratch_.push_back({.queries = parts[0],
                        .scores = parts[1],
                        .span = {.largest = parts[2], .weights = parts[3], .sums = parts[4]},
                        .whole = {.largest = parts[5], .weights = parts[6], .sums = parts[7]},
                        .keys = parts[8],
                        .turned = parts[9],
                        .values = parts[10],
                        .ranges = reinterpret_cast<KeyRange*>(parts[11]),
                        .ahead = {}});
    scratch_.back().ahead.reserve(2 * size_t{kKeys});
  }
  const size_t split = tasks_.split_queries();
  split_bytes_ = split * (sums_width_ + kWeightLanes + 1) * sizeof(float);
  if (threads == 1) return {};
  // sums and weights come first: they are whole lines.
  TRY(split_memory_, HostMemory::Allocate(split_bytes_));
  split_.sums = reinterpret_cast<float*>(split_memory_.data());
  split_.weights = split_.sums + split * sums_width_;
  split_.largest = split_.weights + split * kWeightLanes;
  return {};
}

void TiledAttention::Bind(const Layer& layer, std::span<const RowCells> rows) {
  CHECK(layer.sinks.empty() || layer.sinks.size() == shape_.n_head);
  layer_ = layer;
  rows_ = rows;
  tasks_.Cut(rows, layer.window);
  next_task_.store(0, std::memory_order_relaxed);
  for (size_t i = 0; i < tasks_.wholes().size(); ++i) {
    left_[i].store(tasks_.wholes()[i].n_tasks, std::memory_order_relaxed);
  }
}

ggml_tensor* TiledAttention::Node(ggml_context* ctx, ggml_tensor* q) {
  CHECK(q->type == GGML_TYPE_F32 && ggml_is_contiguous(q));
  CHECK(q->ne[0] == shape_.dim_k && q->ne[1] == shape_.n_head);
  std::array<ggml_tensor*, 1> args = {q};
  const auto call = [](ggml_tensor* result, int thread, int /*n_threads*/, void* userdata) {
    auto* self = static_cast<TiledAttention*>(userdata);
    const ScopedTeamTime timed(self->time_, thread);
    self->Work(result, self->scratch_[static_cast<size_t>(thread)]);
  };
  return ggml_custom_4d(ctx, GGML_TYPE_F32, int64_t{shape_.n_head} * shape_.dim_v, q->ne[2], 1, 1,
                        args.data(), static_cast<int>(args.size()), call, GGML_N_TASKS_MAX, this);
}

void TiledAttention::Work(ggml_tensor* result, Scratch& s) {
  CHECK(static_cast<size_t>(result->ne[1]) * shape_.n_choices == rows_.size());
  const auto* q = static_cast<const float*>(result->src[0]->data);
  auto* out = static_cast<float*>(result->data);
  for (;;) {
    const uint32_t number = next_task_.fetch_add(1, std::memory_order_relaxed);
    if (number >= tasks_.tasks().size() || ShallStop()) return;
    const Task& task = tasks_.tasks()[number];
    Begin(task, q, s);
    if (tasks_.is_split()) {
      AttendSplit(task, out, s);
    } else {
      AttendAll(task, out, s);
    }
  }
}

// softmax(scale * Q K) V for a task's rows and heads, one span after the other.
void TiledAttention::AttendAll(const Task& task, float* out, Scratch& s) const {
  const uint32_t span = tile_of(task).span;
  if (layer_.sinks.empty() && task.end <= EndOfSpan(task.begin, span)) {
    AttendSpan(task, task.begin, task.end, s.span, s);
    return End(task, s.span, out);
  }
  BeginWhole(task, s.whole);
  for (uint32_t begin = task.begin; begin < task.end;) {
    const uint32_t end = std::min(EndOfSpan(begin, span), task.end);
    AttendSpan(task, begin, end, s.span, s);
    Merge(task, begin, end, s.span, s.whole);
    begin = end;
  }
  End(task, s.whole, out);
}

// Attends to one span. The thread that ends the last span of a whole merges the spans.
void TiledAttention::AttendSplit(const Task& task, float* out, Scratch& s) {
  AttendSpan(task, task.begin, task.end, SplitPart(task.first_query), s);
  if (left_[task.whole].fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  const AttentionTasks::Whole& whole = tasks_.wholes()[task.whole];
  BeginWhole(task, s.whole);
  for (const Task& part : tasks_.tasks().subspan(whole.first_task, whole.n_tasks)) {
    Merge(part, part.begin, part.end, SplitPart(part.first_query), s.whole);
  }
  End(task, s.whole, out);
}

TiledAttention::Running TiledAttention::SplitPart(uint32_t first_query) const {
  return {.largest = split_.largest + first_query,
          .weights = split_.weights + size_t{first_query} * kWeightLanes,
          .sums = split_.sums + size_t{first_query} * sums_width_};
}

// q [rows][n_head][dim_k] -> queries [row of the tile][head of the task][dim_k], scaled.
void TiledAttention::Begin(const Task& task, const float* q, Scratch& s) const {
  const Tile& tile = tile_of(task);
  const float scale = layer_.scale * std::numbers::log2e_v<float>;
  const size_t width = size_t{task.n_heads} * shape_.dim_k;
  for (uint32_t r = 0; r < tile.count; ++r) {
    const size_t row = size_t{tile.first} + r;
    const float* from = q + (row * shape_.n_head + task.first_head) * shape_.dim_k;
    float* to = s.queries + r * width;
    for (size_t i = 0; i < width; ++i) to[i] = from[i] * scale;
  }
}

// Begins with no position, only the sinks.
void TiledAttention::BeginWhole(const Task& task, const Running& whole) const {
  const size_t queries = size_t{tile_of(task).count} * task.n_heads;
  Clear(whole, queries, sums_width_);
  if (layer_.sinks.empty()) return;
  for (size_t i = 0; i < queries; ++i) {
    const size_t head = task.first_head + i % task.n_heads;
    whole.largest[i] = layer_.sinks[head] * std::numbers::log2e_v<float>;
    whole.weights[i * kWeightLanes] = 1.0F;
  }
}

// Attends to positions [begin, end) of one span.
void TiledAttention::AttendSpan(const Task& task, uint32_t begin, uint32_t end, const Running& to,
                                Scratch& s) const {
  const Tile& tile = tile_of(task);
  Clear(to, size_t{tile.count} * task.n_heads, sums_width_);
  for (uint32_t p = begin / kKeys * kKeys; p < end && !ShallStop(); p += kKeys) {
    LoadBlock(tile, task.kv_head, p, end, s);
    AttendBlock(task, p, to, s);
  }
}

// Loads keys and values of positions [position, position + kKeys), as far as the span reaches.
// s.ahead: the next block's keys and values. A head has a few lines of each cell, an order that no
// hardware prefetcher follows: the kernel prefetches the next block meanwhile.
void TiledAttention::LoadBlock(const Tile& tile, uint32_t kv_head, uint32_t position, uint32_t end,
                               Scratch& s) const {
  const AttentionKernel::ToFloat to_float = kernel_.to_float(shape_.kv_type);
  const size_t k_bytes = KvBytes(shape_.kv_type, shape_.dim_k);
  const size_t v_bytes = KvBytes(shape_.kv_type, shape_.dim_v);
  const size_t k_row =
      shape_.cell_k > 0 ? KvBytes(shape_.kv_type, shape_.cell_k) : shape_.n_head_kv * k_bytes;
  const size_t v_row = shape_.n_head_kv * v_bytes;
  const std::byte* k = layer_.k + kv_head * k_bytes;
  const bool has_values = !shape_.values_in_keys;
  const std::byte* v = has_values ? layer_.v + kv_head * v_bytes : nullptr;
  const uint32_t count = std::min(kKeys, end - position);
  const uint32_t next_count = std::min(kKeys, end - position - count);
  const RowCells& row = CellsOf(tile, 0);
  CHECK(position >= row.first);
  s.ahead.clear();
  CellCursor cells(row, position);
  CellCursor next(row, position + count);
  for (uint32_t i = 0; i < count; ++i) {
    const size_t cell = cells.Take();
    to_float(k + cell * k_row, s.keys + i * key_stride_, shape_.dim_k);
    if (has_values) to_float(v + cell * v_row, s.values + i * value_stride_, shape_.dim_v);
    if (i >= next_count) continue;
    const size_t later = next.Take();
    s.ahead.push_back({.at = k + later * k_row, .bytes = k_bytes});
    if (has_values) s.ahead.push_back({.at = v + later * v_row, .bytes = v_bytes});
  }
  kernel_.turn(s.keys, key_stride_, shape_.dim_k, s.turned);
}

void TiledAttention::AttendBlock(const Task& task, uint32_t position, const Running& to,
                                 Scratch& s) const {
  const Tile& tile = tile_of(task);
  // Ranges of the block's keys, by row.
  for (uint32_t r = 0; r < tile.count; ++r) {
    const RowCells& row = CellsOf(tile, r);
    const auto within = [&](uint32_t p) {
      return std::clamp(p, position, position + kKeys) - position;
    };
    const KeyRange range{.begin = within(FirstSeen(row, layer_.window)),
                         .end = within(row.n_positions)};
    std::fill_n(s.ranges + size_t{r} * task.n_heads, task.n_heads, range);
  }
  if (layer_.relative != nullptr) FindAdded(task, position, s);
  // Rows at either end with an empty range are left out: with causal rows, those before the block.
  const uint32_t n_queries = tile.count * task.n_heads;
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
                  .added = layer_.relative != nullptr ? s.added.data() + first : nullptr,
                  .scores = s.scores + size_t{first} * kKeys,
                  .largest = to.largest + first,
                  .weights = to.weights + size_t{first} * kWeightLanes,
                  .sums = to.sums + size_t{first} * sums_width_,
                  .ahead = s.ahead});
}

// Finds the numbers that are added to each query's scores with the keys of a block.
void TiledAttention::FindAdded(const Task& task, uint32_t position, Scratch& s) const {
  const Tile& tile = tile_of(task);
  s.added.resize(size_t{tile.count} * task.n_heads);
  for (uint32_t r = 0; r < tile.count; ++r) {
    const int64_t distance = int64_t{position} - CellsOf(tile, r).at;
    for (uint32_t h = 0; h < task.n_heads; ++h) {
      s.added[size_t{r} * task.n_heads + h] = layer_.relative->From(task.first_head + h, distance);
    }
  }
}

// Adds a span, positions [begin, end), to the spans before it. A row without a position in the span
// stays unchanged: computed alone, the row would not have the span.
void TiledAttention::Merge(const Task& task, uint32_t begin, uint32_t end, const Running& span,
                           const Running& whole) const {
  const Tile& tile = tile_of(task);
  for (uint32_t r = 0; r < tile.count; ++r) {
    const RowCells& row = CellsOf(tile, r);
    const uint32_t first_seen = FirstSeen(row, layer_.window);
    if (row.n_positions <= begin || first_seen >= end) continue;
    // The first span is copied unchanged: a row with one span is not merged at all.
    const bool is_first = first_seen >= begin && layer_.sinks.empty();
    for (uint32_t h = 0; h < task.n_heads; ++h) {
      const size_t query = size_t{r} * task.n_heads + h;
      const float before = whole.largest[query];
      const float of_span = span.largest[query];
      const float largest = std::max(before, of_span);
      // Equal numbers may both be -infinity, where damaged scores have no largest.
      const float shrink_before = before == largest ? 1.0F : std::exp2(before - largest);
      const float shrink_span = of_span == largest ? 1.0F : std::exp2(of_span - largest);
      const auto add = [&](float* to, const float* from, size_t n) {
        if (is_first) {
          std::copy_n(from, n, to);
        } else {
          for (size_t i = 0; i < n; ++i) to[i] = to[i] * shrink_before + from[i] * shrink_span;
        }
      };
      whole.largest[query] = largest;
      add(whole.weights + query * kWeightLanes, span.weights + query * kWeightLanes, kWeightLanes);
      add(whole.sums + query * sums_width_, span.sums + query * sums_width_, sums_width_);
    }
  }
}

// sums / weights -> out [rows][n_head][dim_v]
void TiledAttention::End(const Task& task, const Running& whole, float* out) const {
  const Tile& tile = tile_of(task);
  for (uint32_t r = 0; r < tile.count; ++r) {
    const size_t row = size_t{tile.first} + r;
    float* to = out + (row * shape_.n_head + task.first_head) * shape_.dim_v;
    for (uint32_t h = 0; h < task.n_heads; ++h, to += shape_.dim_v) {
      const size_t query = size_t{r} * task.n_heads + h;
      const float* weights = whole.weights + query * kWeightLanes;
      const float weight = std::accumulate(weights, weights + kWeightLanes, 0.0F);
      const float* sums = whole.sums + query * sums_width_;
      // A row attends at least to itself, so a weight of zero or infinity comes from damaged
      // scores. The layer's result is then NaN, which ends the step.
      const bool is_sound = weight > 0.0F && weight <= std::numeric_limits<float>::max();
      const float share = is_sound ? 1.0F / weight : std::numeric_limits<float>::quiet_NaN();
      for (uint32_t d = 0; d < shape_.dim_v; ++d) to[d] = sums[d] * share;
    }
  }
}

}  // namespace moestro
