// SPDX-License-Identifier: MIT
#include "forward/dense/step_rows.h"

#include <algorithm>
#include <cstddef>

namespace moestro {
namespace {

static_assert(AttentionTasks::kLeastSpan % AttentionKernel::kKeys == 0);
// Tasks of a thread, so that threads end together.
constexpr uint32_t kTasksPerThread = 4;
// Heads of a part, at least: with fewer heads, converting keys would take longer than scoring them.
constexpr uint32_t kLeastPart = 4;

uint32_t CeilDivide(uint32_t n, uint32_t by) { return (n + by - 1) / by; }

uint32_t CountSpans(uint32_t begin, uint32_t end, uint32_t span) {
  return CeilDivide(end, span) - begin / span;
}

}  // namespace

uint32_t FirstSeen(const RowCells& row, uint32_t window) {
  const bool is_limited = window > 0 && row.n_positions > window;
  return std::max(row.begin, is_limited ? row.n_positions - window : 0);
}

uint32_t SpanOf(uint32_t first, uint32_t n_positions) {
  uint32_t span = AttentionTasks::kLeastSpan;
  while (CountSpans(first, n_positions, span) > AttentionTasks::kMostSpans) span *= 2;
  return span;
}

AttentionTasks::AttentionTasks(uint32_t n_head, uint32_t n_head_kv, uint32_t threads,
                               uint32_t n_choices)
    : n_head_(n_head),
      n_head_kv_(n_head_kv),
      threads_(threads),
      n_choices_(n_choices),
      choice_kv_(n_head_kv / n_choices),
      group_(n_head / n_head_kv),
      tile_rows_(std::max(1U, kTileQueries / group_)) {}

void AttentionTasks::Cut(std::span<const RowCells> rows, uint32_t window) {
  CutTiles(rows, window);
  tasks_.clear();
  wholes_.clear();
  n_split_queries_ = 0;
  const bool is_split = ShallSplit();
  uint32_t n_tasks = 0;
  for (const Tile& tile : tiles_) {
    n_tasks += choice_kv_ * (is_split ? CountSpans(tile.begin, tile.end, tile.span) : 1);
  }
  const uint32_t parts = std::clamp(CeilDivide(threads_, std::max(n_tasks, 1U)), 1U,
                                    std::max(1U, group_ / kLeastPart));
  for (uint32_t i = 0; i < tiles_.size(); ++i) {
    const uint32_t first = tiles_[i].choice * choice_kv_;
    for (uint32_t kv_head = first; kv_head < first + choice_kv_; ++kv_head) {
      AddTasks(i, kv_head, parts, is_split);
    }
  }
}

void AttentionTasks::CutTiles(std::span<const RowCells> rows, uint32_t window) {
  tiles_.clear();
  for (uint32_t choice = 0; choice < n_choices_; ++choice) CutTilesOf(choice, rows, window);
  // Equal tiles are sorted by first row and choice: their order must not depend on the sort.
  std::ranges::sort(tiles_, [](const Tile& a, const Tile& b) {
    const uint64_t a_work = uint64_t{a.end - a.begin} * a.count;
    const uint64_t b_work = uint64_t{b.end - b.begin} * b.count;
    if (a_work != b_work) return a_work > b_work;
    return a.first != b.first ? a.first < b.first : a.choice < b.choice;
  });
}

void AttentionTasks::CutTilesOf(uint32_t choice, std::span<const RowCells> rows, uint32_t window) {
  for (uint32_t r = 0; r < rows.size() / n_choices_; ++r) {
    const RowCells& row = rows[size_t{r} * n_choices_ + choice];
    const uint32_t begin = FirstSeen(row, window);
    const uint32_t span = SpanOf(begin, row.n_positions);
    const bool joins = r > 0 && tiles_.back().count < tile_rows_ && tiles_.back().span == span &&
                       rows[(size_t{r} - 1) * n_choices_ + choice].runs.data() == row.runs.data();
    if (!joins) {
      tiles_.push_back({.first = r,
                        .count = 1,
                        .choice = choice,
                        .begin = begin,
                        .end = row.n_positions,
                        .span = span});
      continue;
    }
    Tile& tile = tiles_.back();
    ++tile.count;
    tile.begin = std::min(tile.begin, begin);
    tile.end = std::max(tile.end, row.n_positions);
  }
}

bool AttentionTasks::ShallSplit() const {
  if (tiles_.size() * choice_kv_ >= size_t{kTasksPerThread} * threads_) return false;
  uint32_t most_spans = 0;
  uint64_t queries = 0;
  for (const Tile& tile : tiles_) {
    const uint32_t spans = CountSpans(tile.begin, tile.end, tile.span);
    most_spans = std::max(most_spans, spans);
    queries += uint64_t{tile.count} * spans * choice_kv_ * group_;
  }
  return threads_ > 1 && most_spans > 1 && queries <= split_queries();
}

void AttentionTasks::AddTasks(uint32_t tile, uint32_t kv_head, uint32_t parts, bool is_split) {
  const Tile& rows = tiles_[tile];
  const uint32_t part_heads = CeilDivide(group_, parts);
  for (uint32_t from = 0; from < group_; from += part_heads) {
    Task task{.tile = tile,
              .kv_head = kv_head,
              .first_head = kv_head * group_ + from,
              .n_heads = std::min(part_heads, group_ - from),
              .begin = rows.begin,
              .end = rows.end};
    if (!is_split) {
      tasks_.push_back(task);
      continue;
    }
    task.whole = static_cast<uint32_t>(wholes_.size());
    wholes_.push_back({.first_task = static_cast<uint32_t>(tasks_.size())});
    for (uint32_t at = rows.begin; at < rows.end; at = task.end) {
      task.begin = at;
      task.end = std::min(EndOfSpan(at, rows.span), rows.end);
      task.first_query = n_split_queries_;
      n_split_queries_ += rows.count * task.n_heads;
      tasks_.push_back(task);
      ++wholes_.back().n_tasks;
    }
  }
}

StateRows::StateRows(std::span<const RowState> rows, uint32_t most) {
  std::vector<std::vector<StateRun>> sequences;
  std::vector<StateSlot> written;  // [sequence]: place that the last run writes
  for (uint32_t row = 0; row < rows.size(); ++row) {
    const RowState& state = rows[row];
    if (!state.to) continue;
    const auto same = std::ranges::find_if(written, [&](StateSlot place) {
      return place == *state.to || (state.from && place == *state.from);
    });
    const auto sequence = static_cast<size_t>(same - written.begin());
    if (same == written.end()) {
      written.push_back(*state.to);
      sequences.emplace_back();
    }
    std::vector<StateRun>& runs = sequences[sequence];
    const bool goes_on = !runs.empty() && written[sequence] == *state.to &&
                         runs.back().first + runs.back().count == row && runs.back().count < most;
    written[sequence] = *state.to;
    if (goes_on) {
      ++runs.back().count;
    } else {
      runs.push_back({.first = row, .count = 1, .state = state});
    }
  }
  for (const std::vector<StateRun>& runs : sequences) {
    runs_.append_range(runs);
    begins_.push_back(static_cast<uint32_t>(runs_.size()));
  }
}

}  // namespace moestro
