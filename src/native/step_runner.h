// SPDX-License-Identifier: MIT
// A batch to logits: its rows get cells, go through the layers chunk by chunk, and are committed or
// cut back. forward/step.cc is what happens to a chunk.
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
#include "native/phase_counter.h"
#include "native/prefetch_part.h"
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
    std::optional<Error>& closed;  // gets why no step can be computed any more
    const Progress& report;        // of prefills
  };
  explicit StepRunner(const Parts& parts);
  StepRunner(const StepRunner&) = delete;
  StepRunner& operator=(const StepRunner&) = delete;

  using LogitsSink = Engine::LogitsSink;

  Status Check(const Batch& batch) const;
  // Cells for all rows, or nothing at all. kInvalidRequest. REQUIRES: Check().
  Status Extend(const Batch& batch);
  // Every sequence to where it was before the rows. REQUIRES: they are their sequences' last.
  void CutBack(const Batch& batch);

  // Work of a phase, with all that it counts. After an error no read is left that the work asked
  // for, and a stop has had its effect.
  Status Counted(PhaseStats& phase, const std::function<Status()>& work);
  // The same, after which the rows are committed, or cut back if it failed. REQUIRES: Extend().
  Status Finish(const Batch& batch, PhaseStats& phase, const std::function<Status()>& compute);
  // The rows' embeddings to logits; decode costs are told to prefetch. A step of prompts' rows
  // alone steps aside when the interlude is due. REQUIRES: Extend(), within Counted().
  Status Compute(const Batch& batch, const LogitsSink& sink, const Interlude& interlude = {});
  // The interlude that a prompt's step has stepped aside for; nullptr: none has.
  const Interlude* aside() const { return aside_; }

  // Rows that are their sequences' last can be computed again.
  bool CanRepeat(const Batch& last) const;
  // Computes them again, into the same cells. An error: they are cut back.
  Status Repeat(const Batch& last, PhaseStats& phase);
  // Every sequence's tokens from the first on, whose keys, values and states are lost, and says how
  // many these are. A stop is for the step that is computed next: without all of this there is
  // none.
  Result<size_t> ComputeAllAgain();

  // Gives an empty sequence these tokens with keys and values that are made up from the seed, and
  // a state of zeros. kInvalidRequest; kDevice. The sequence is empty then. REQUIRES: Check().
  Status MakeUp(SequenceId id, std::span<const Token> tokens, uint64_t seed);

  // A row that has got its cell; `runs`: its sequence's cells, which the row borrows.
  StepRow RowOf(const BatchRow& row, std::span<const CellRun> runs) const;

 private:
  Status ComputeChunk(const Batch& batch, size_t first, size_t n, const Interlude& interlude);
  Status Heads(const Batch& batch, size_t first, size_t n, const LogitsSink& sink);
  Interlude Between(const Interlude& wanted, const LittleStep& rest);
  Status StepAside(const Interlude& interlude, const LittleStep& rest);
  Status LookAtFiles();

  Parts parts_;
  const EnginePlan& plan_;
  const ModelSpec& spec_;
  PhaseCounter counter_;
  double look_ahead_share_;  // of the dense part's time
  const Interlude* aside_ = nullptr;
};

}  // namespace moestro
