// SPDX-License-Identifier: MIT
// Runs a batch to logits: the rows get cells, go through the layers chunk by chunk, and are
// committed or cut back. forward/step.cc computes one chunk.
//
// Thread rule: the engine thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/file_watch.h"
#include "base/result.h"
#include "base/stop_signal.h"
#include "core/batch.h"
#include "core/interlude.h"
#include "engine/engine.h"
#include "engine/run_stats.h"
#include "forward/experts/expert_exec.h"
#include "forward/forward.h"
#include "memory/sequence.h"
#include "native/dense_part.h"
#include "native/opened_model.h"
#include "native/prefetch_part.h"
#include "residency/phase_counter.h"
#include "residency/residency.h"

namespace moestro {

// A prompt's rows, from a sequence's first position on.
Batch PromptOf(SequenceId sequence, std::span<const Token> tokens);

class StepRunner {
 public:
  // Everything is borrowed and must outlive this.
  struct Parts {
    const OpenedModel& opened;
    FileWatch& watch;
    SequenceTable& sequences;
    DensePart& dense;
    Residency& residency;
    PrefetchPart& prefetch;
    ExpertExec& experts;
    Forward& forward;
    StopSignal& stop;
    std::optional<Error>& closed;  // gets the error after which no step can be computed
    const Progress& report;        // progress of prefills
  };
  explicit StepRunner(const Parts& parts);
  StepRunner(const StepRunner&) = delete;
  StepRunner& operator=(const StepRunner&) = delete;

  using LogitsSink = Engine::LogitsSink;

  Status Check(const Batch& batch) const;
  // Gives every row a cell. kInvalidRequest: no row has got a cell. REQUIRES: Check().
  Status Extend(const Batch& batch);
  // Cuts every sequence back to its length before the rows. REQUIRES: the rows are the last of
  // their sequences.
  void CutBack(const Batch& batch);

  // Runs the work and counts it in the phase. After an error no read of the work is left, and a
  // stop request is used up.
  Status Counted(PhaseStats& phase, const std::function<Status()>& work);
  // Runs and counts `compute` as Counted() does. Afterwards the rows are committed, or cut back
  // after an error. REQUIRES: Extend().
  Status Finish(const Batch& batch, PhaseStats& phase, const std::function<Status()>& compute);
  // Computes the rows from embeddings to logits, and gives the costs of decode to prefetch. A step
  // of prompts' rows alone runs the interlude when it is due. REQUIRES: Extend(), within Counted().
  Status Compute(const Batch& batch, const LogitsSink& sink, const Interlude& interlude = {});
  // The interlude that runs within a prompt's step; nullptr: none runs.
  const Interlude* aside() const { return aside_; }

  // Whether the rows, the last of their sequences, can be computed again.
  bool CanRepeat(const Batch& last) const;
  // Computes the rows again, into the same cells. After an error the rows are cut back.
  Status Repeat(const Batch& last, PhaseStats& phase);
  // Computes all tokens of every sequence again after their keys, values and states are lost, and
  // returns the number of tokens. A stop request waits for the next step, which needs all of these
  // tokens. After an error no sequence can go on from any position.
  Result<size_t> ComputeAllAgain();

  // Gives an empty sequence these tokens with keys and values that are made up from the seed, and a
  // state of zeros. kInvalidRequest; kDevice. After an error the sequence is empty. REQUIRES:
  // Check().
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
  void Divide(const Timeline& timeline, StepRow& row) const;
  size_t RowsTogether(const Batch& batch, size_t first) const;
  void TrimWindows(std::span<const BatchRow> rows);
  Status ComputeChunk(const Batch& batch, size_t first, size_t n, const Interlude& interlude);
  Status Heads(const Batch& batch, size_t first, size_t n, const LogitsSink& sink);
  Interlude Between(const Interlude& wanted, const LittleStep& rest);
  Status StepAside(const Interlude& interlude, const LittleStep& rest);
  Status LookAtFiles();

  Parts parts_;
  const EnginePlan& plan_;
  const ModelSpec& spec_;
  PhaseCounter counter_;
  double look_ahead_share_;  // share of the dense part's time
  const Interlude* aside_ = nullptr;
};

}  // namespace moestro
