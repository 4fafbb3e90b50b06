// SPDX-License-Identifier: MIT
// Rows of a step as attention and states see them. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "compute/attention_kernel.h"
#include "core/batch.h"
#include "core/ids.h"
#include "core/kv_cells.h"
#include "memory/memory_use.h"

namespace moestro {

// The rows of a step for the dense part. Plain values.

// Cuts the attention of a step's rows into tiles of rows, spans of positions, parts of heads. Pure.
//
// Spans decide bits: each span of a row has a softmax of its own, and spans are merged in order of
// position. So a row's spans follow from the positions that this row attends to, and from nothing
// else. Tiles and parts only divide the work among threads: a task is a tile's part of heads, with
// all spans one after the other or, where such tasks are too few for the threads, with one span.

// The cells that a row attends to: those of positions `begin` to n_positions - 1, in order.
struct RowCells {
  std::span<const CellRun> runs;  // runs from the cell of `first` on
  uint32_t n_positions = 0;
  uint32_t first = 0;  // a multiple of AttentionKernel::kKeys, within every row's window
  uint32_t begin = 0;  // earlier positions are not attended to
  uint32_t at = 0;     // the row's own position, where scores depend on distances
};

// The first position that a row attends to. window 0: all from `begin` on.
uint32_t FirstSeen(const RowCells& row, uint32_t window);

// The length of the spans of a row that attends to positions [first, n_positions): a power of two.
// Spans begin at multiples of the length. A row has kMostSpans spans at most.
uint32_t SpanOf(uint32_t first, uint32_t n_positions);
// The end of the span of position `at`.
constexpr uint32_t EndOfSpan(uint32_t at, uint32_t span) { return (at / span + 1) * span; }

class AttentionTasks {
 public:
  static constexpr uint32_t kLeastSpan = 512;
  static constexpr uint32_t kMostSpans = 16;
  // Queries of a tile: enough that converting a block of keys and values is a tenth of the work on
  // the block, few enough that everything stays in the second-level cache (300 KiB with heads of
  // 128).
  static constexpr uint32_t kTileQueries = 128;

  // n_head_kv divides n_head. n_choices divides n_head_kv: consecutive heads of so many parts
  // attend to cells of their own.
  AttentionTasks(uint32_t n_head, uint32_t n_head_kv, uint32_t threads, uint32_t n_choices = 1);

  // Rows [first, first + count), which by one of their choices have the same cells and the same
  // spans and visit positions [begin, end).
  struct Tile {
    uint32_t first = 0;
    uint32_t count = 0;
    uint32_t choice = 0;
    uint32_t begin = 0;
    uint32_t end = 0;
    uint32_t span = 0;
  };
  // A query is one head of a row: query r * n_heads + h of a task is of row tile.first + r and head
  // first_head + h.
  struct Task {
    uint32_t tile = 0;
    uint32_t kv_head = 0;
    uint32_t first_head = 0;
    uint32_t n_heads = 0;
    uint32_t begin = 0;  // positions [begin, end): all of the tile's; for a split task one span
    uint32_t end = 0;
    uint32_t first_query = 0;  // index among the queries of all split tasks
    uint32_t whole = 0;        // the whole that a split task is a part of
  };
  // Split tasks [first_task, first_task + n_tasks) of one tile and its heads, spans in order.
  struct Whole {
    uint32_t first_task = 0;
    uint32_t n_tasks = 0;
  };

  // rows: [row][choice]
  void Cut(std::span<const RowCells> rows, uint32_t window);
  // The cells of row `row` of a tile, among those that were cut.
  const RowCells& CellsOf(std::span<const RowCells> rows, const Tile& tile, uint32_t row) const {
    return rows[(size_t{tile.first} + row) * n_choices_ + tile.choice];
  }
  std::span<const Tile> tiles() const { return tiles_; }
  std::span<const Task> tasks() const { return tasks_; }  // the longest first
  std::span<const Whole> wholes() const { return wholes_; }
  bool is_split() const { return !wholes_.empty(); }

  // Queries of a task, and of all split tasks, at most.
  uint32_t tile_queries() const { return tile_rows_ * group_; }
  uint32_t split_queries() const { return tile_queries() * kMostSpans; }

 private:
  void CutTiles(std::span<const RowCells> rows, uint32_t window);
  void CutTilesOf(uint32_t choice, std::span<const RowCells> rows, uint32_t window);
  bool ShallSplit() const;
  void AddTasks(uint32_t tile, uint32_t kv_head, uint32_t parts, bool is_split);

  uint32_t n_head_;
  uint32_t n_head_kv_;
  uint32_t threads_;
  uint32_t n_choices_;
  uint32_t choice_kv_;  // key-value heads of a choice
  uint32_t group_;      // heads that share keys and values
  uint32_t tile_rows_;
  std::vector<Tile> tiles_;
  std::vector<Task> tasks_;
  std::vector<Whole> wholes_;
  uint32_t n_split_queries_ = 0;
};

// The rows of a graph in the order in which mixers with a state take them: sequence by sequence, a
// few consecutive rows at a time. Plain values.

// The places of the state before a row and of the state after it. Both are the same place for a row
// that follows another row of its sequence, unless the state between the two is kept.
struct RowState {
  std::optional<StateSlot> from = {};  // nullopt: all zeros, before the first token
  std::optional<StateSlot> to = {};    // nullopt: no layer has a state
};

// Consecutive rows [first, first + count) of one sequence.
struct StateRun {
  uint32_t first = 0;
  uint32_t count = 0;
  RowState state;
};

class StateRows {
 public:
  StateRows() = default;
  // Runs of at most `most` rows. Rows without a place are left out; graphs that are only sized have
  // such rows.
  StateRows(std::span<const RowState> rows, uint32_t most);

  uint32_t sequences() const { return static_cast<uint32_t>(begins_.size()) - 1; }
  // Runs of a sequence in order of position; each run begins with the state that the run before it
  // wrote.
  std::span<const StateRun> of(uint32_t sequence) const {
    return std::span(runs_).subspan(begins_[sequence], begins_[sequence + 1] - begins_[sequence]);
  }

 private:
  std::vector<StateRun> runs_;          // sequence by sequence
  std::vector<uint32_t> begins_ = {0};  // [sequence], and the end
};

// A row of a step, with the cells of its position and of all positions before it.
struct StepRow {
  Token token = 0;
  uint32_t position = 0;
  uint32_t cell = 0;  // cell of the row's key and value
  RowCells visible;   // positions 0 .. position of the sequence; the runs outlive the step
  // Cells in layers with cells of the last positions alone, if the model has such layers.
  uint32_t recent_cell = 0;
  RowCells recent = {};
  RowState state = {};
  // For a model with an encoder: whether the row is of a source; if not, the cells of the
  // sequence's source.
  bool is_source = false;
  RowCells source = {};
  SequenceId sequence = {};
  // The sequence's tokens up to the row's own, where a layer takes in n-grams. Lives until
  // Forward::Begin() returns.
  std::span<const Token> text = {};
};

// Layers [first, end) of a model.
struct LayerRange {
  uint16_t first = 0;
  uint16_t end = 0;
  bool is_empty() const { return first >= end; }
};

// Rows [first, first + count) of a step.
struct StepRows {
  uint32_t first = 0;
  uint32_t count = 0;
  bool operator==(const StepRows&) const = default;
};

}  // namespace moestro
