// SPDX-License-Identifier: MIT
// Computes the rows of a step to logits: the rows go through the layers chunk by chunk.
// forward/step.cc computes one chunk; kit/slot_engine.h checks rows before a step, and commits them
// or cuts them back afterwards.
//
// Thread rule: the engine thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/batch.h"
#include "engine/engine.h"
#include "forward/forward.h"
#include "kit/slot_engine.h"
#include "memory/sequence.h"
#include "native/dense_model.h"
#include "native/opened_model.h"

namespace moestro {

// A prompt's rows, from a sequence's first position on.
Batch PromptOf(SequenceId sequence, std::span<const Token> tokens);

class StepRunner {
 public:
  // Everything must outlive this.
  StepRunner(const OpenedModel& opened, SequenceTable& sequences, DenseModel& dense,
             Forward& forward, StepFrame& frame);
  StepRunner(const StepRunner&) = delete;
  StepRunner& operator=(const StepRunner&) = delete;

  using LogitsSink = Engine::LogitsSink;

  // kInvalidRequest: a little step that the engine cannot take, or foreseen experts of another
  // shape. For a model with an encoder also: a source that is not whole, that other rows interrupt,
  // that is longer than a chunk, or whose rows want logits. REQUIRES: the sequences exist.
  Status Check(const Batch& batch) const;
  // Computes the rows from embeddings to logits, and gives the costs of decode to prefetch.
  // REQUIRES: the rows have cells; within a StepFrame::Phase.
  Status Compute(const Batch& batch, const LogitsSink& sink);
  // The same layer by layer; null: the rows decode, or stay on a device. `batch` must outlive the
  // pieces, as this.
  std::unique_ptr<StepPieces> PiecesOf(const Batch& batch, LogitsSink sink);

  // Drafts a token behind each of the rows by the layer that predicts further tokens: the first
  // row's token is given, and each other row has the token that was drafted behind the row before.
  // REQUIRES: the rows are consecutive, of one sequence, follow what was computed of it, and have
  // cells; the model predicts; within a StepFrame::Phase.
  Result<std::vector<Token>> Predict(std::span<const BatchRow> rows);

  // Computes all tokens of every sequence again after their keys, values and states are lost, and
  // returns the number of tokens. A stop request waits for the next step, which needs all of these
  // tokens. After an error no sequence can go on from any position.
  Result<size_t> ComputeAllAgain();

  // Gives an empty sequence these tokens with keys and values that are made up from the seed, and a
  // state of zeros. kInvalidRequest; kDevice. After an error the sequence is empty. REQUIRES: a
  // step could take the tokens.
  Status MakeUp(SequenceId id, std::span<const Token> tokens, uint64_t seed);

  // The cells of a sequence.
  struct Runs {
    std::vector<CellRun> all;
    std::vector<CellRun> recent;  // cells of layers with a window
  };
  Runs RunsOf(SequenceId sequence) const;
  // The StepRow of a row that has its cells. The StepRow borrows `runs`.
  StepRow RowOf(const BatchRow& row, const Runs& runs) const;
  // Gives the rows their cells in layers with a window, unless they have them. Rows of a sequence
  // are in order of position. kInvalidRequest when cells run out.
  Status Advance(std::span<const BatchRow> rows);

 private:
  class Pieces;
  // A chunk of a batch under way. A pass borrows the rest.
  struct Chunk {
    size_t first = 0;  // rows [first, first + n) of the batch
    size_t n = 0;
    std::map<SequenceId, Runs> runs = {};
    std::vector<StepRow> rows = {};
    std::vector<RowKind> kinds = {};
    std::optional<Forward::Pass> pass = {};
  };
  Result<std::unique_ptr<Chunk>> BeginChunk(const Batch& batch, size_t first);
  Status EndChunk(const Batch& batch, const Chunk& chunk, const LogitsSink& sink);
  void Divide(const Timeline& timeline, StepRow& row) const;
  size_t RowsTogether(const Batch& batch, size_t first) const;
  void TrimWindows(std::span<const BatchRow> rows);
  StepRows NextHead(std::span<const BatchRow> rows, size_t at) const;
  Status Heads(const Batch& batch, size_t first, size_t n, const LogitsSink& sink);
  Status CheckForeseen(const Batch& batch) const;
  Status CheckSources(const Batch& batch) const;

  const OpenedModel& opened_;
  const EnginePlan& plan_;
  const ModelSpec& spec_;
  SequenceTable& sequences_;
  DenseModel& dense_;
  Forward& forward_;
  StepFrame& frame_;
  double look_ahead_share_;  // share of the dense part's time
};

}  // namespace moestro
