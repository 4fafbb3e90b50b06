// SPDX-License-Identifier: MIT
// Sequences as files; docs/sequence-format.md describes the bytes.
//
// Thread rule: the engine thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/binary_file.h"
#include "base/output_file.h"
#include "base/result.h"
#include "core/ids.h"
#include "engine/sequence.h"
#include "memory/layer_memory.h"
#include "memory/layer_values.h"
#include "memory/sequence.h"
#include "memory/sequence_text.h"

namespace moestro {

// Properties of a run that a file must agree with.
struct SequenceHome {
  TextHome text;
  MemoryShape shape;
  // Cells of layers with a window; empty: such layers have cells of all positions.
  RecentRoom recent = {};
};

// The values of a run's sequences.
struct SequenceValues {
  const KvCache& kv;
  const StateStore& states;
};

// kInvalidRequest: the notes are too long. kIo: nothing is left of the file. kDevice.
// REQUIRES: all tokens of the timeline are committed.
Status SaveTimeline(const OutputPath& path, const std::string& notes, const SequenceHome& home,
                    const Timeline& timeline, const SequenceValues& values);

class SequenceFile {
 public:
  // Reads the header. kInvalidRequest: the file is of another model, other weights, choices or
  // another type, or too long for the context; kInvalidFile, kUnsupported, kIo. `home` must outlive
  // this.
  static Result<SequenceFile> Open(const std::string& path, const SequenceHome& home);
  // Reads tokens, notes and the positions of checkpoints that this run can use. kInvalidFile: a
  // token is outside the vocabulary.
  Result<SavedTokens> ReadTokens() const;
  // Compares the checksum, and warns of a file whose values other kernels computed. kInvalidFile.
  Status Check() const;
  // Fills the timeline's cells, next state, passed states and kept windows (at positions of
  // checkpoints). kInvalidFile, kIo, kDevice. REQUIRES: the timeline holds the file's tokens, none
  // of them committed, and no position is passed or kept but those of ReadTokens().
  Status ReadInto(const Timeline& timeline, const SequenceValues& values) const;

 private:
  struct SavedCheckpoint {
    uint32_t position = 0;
    uint32_t window_first = 0;  // the window's first position; `position`: the file has no window
  };
  struct Header {
    uint32_t version = 0;
    uint32_t block = 0;  // P
    uint32_t n_layer = 0;
    uint64_t position_bytes = 0;
    uint64_t recent_bytes = 0;  // bytes of a position in layers that store the last positions alone
    uint32_t recent_first = 0;  // the first of those positions
    uint64_t pool_bytes = 0;    // of all pools, by the model's shape
    uint64_t state_bytes = 0;
    uint32_t type = 0;
    uint32_t n_checkpoints = 0;
    std::vector<SavedCheckpoint> checkpoints;  // read behind the header
    SequenceText text;

    bool has_windows() const;  // before checkpoints
    uint64_t checkpoints_begin() const { return text.end(); }
    uint64_t table_bytes() const {
      return uint64_t{n_checkpoints} * (has_windows() ? 2 : 1) * sizeof(uint32_t);
    }
    uint64_t cells_begin() const { return checkpoints_begin() + table_bytes(); }
    uint64_t state_begin() const {
      return cells_begin() + text.n_tokens * position_bytes +
             (text.n_tokens - recent_first) * recent_bytes + pool_bytes;
    }
    uint64_t checkpoint_begin(uint32_t i) const {
      return state_begin() + (text.n_tokens > 0 ? state_bytes : 0) + i * state_bytes;
    }
    // Where the window of a checkpoint begins; n_checkpoints: where the last one ends.
    uint64_t window_begin(uint32_t i) const;
    uint64_t file_bytes() const { return window_begin(n_checkpoints) + kChecksumBytes; }
  };
  friend Status SaveTimeline(const OutputPath& path, const std::string& notes,
                             const SequenceHome& home, const Timeline& timeline,
                             const SequenceValues& values);

  SequenceFile(InputFile file, const SequenceHome& home) : file_(std::move(file)), home_(&home) {}
  Status ReadHeader();
  Status CheckShape();
  Status CheckRecent() const;
  Status ReadCheckpoints();
  uint32_t IndexOf(uint32_t position) const;
  Status ReadWindow(uint32_t index, const KvTimeline& window, const KvCache& kv) const;
  Status ReadState(uint64_t offset, std::span<float> state) const;
  // Reads the cells of positions [first, first + n), and of pools that end there, which lie at
  // `offset`; returns the offset behind them.
  Result<uint64_t> ReadCells(uint64_t offset, const Timeline& timeline, uint32_t first, uint32_t n,
                             const KvCache& kv) const;

  InputFile file_;
  const SequenceHome* home_;
  Header header_;
};

}  // namespace moestro
