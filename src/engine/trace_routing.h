// SPDX-License-Identifier: MIT
// Recorded choices in place of a model's routers: real routing over synthetic weights, for
// measurements of speed that depend on the chosen experts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "core/batch.h"
#include "core/ids.h"
#include "core/run_identity.h"
#include "engine/watchers.h"
#include "trace/trace.h"

namespace moestro {

class TraceRouting {
 public:
  // kInvalidRequest, naming both: the trace has another shape than the model; or no tokens of the
  // layers of an encoder, or none of the other layers; or a row names an expert twice.
  static Result<TraceRouting> Create(Trace trace, const ModelId& model);

  // kInvalidRequest: the trace has no little passes, or of another number of experts.
  Status CheckLittle(uint32_t n_used) const;

  // Sets the next rows of the trace, from the begin again after the end, and the same rows for all
  // layers of a step. Rows of a source get the trace's tokens of sources, all other rows the other
  // tokens. Recorded weights where the trace has them, else 1/K. Predictions of later layers are
  // the recorded ones, or none. A routing of fewer than K experts belongs to a little step and gets
  // the recorded little pass; the step with all K right behind gets the same row. For
  // Engine::SetRoutingOverride(). REQUIRES: little steps as CheckLittle() allows them, of one row.
  void Apply(ExpertLayerId layer, Routing& routing, RoutedAhead& ahead);

  const Trace& trace() const { return trace_; }

 private:
  // The trace's tokens that go through the same layers, and the position reached in them.
  struct Tokens {
    std::vector<size_t> all = {};
    size_t first = 0;  // of the step
    size_t next = 0;   // after it

    size_t of(size_t row) const { return all[(first + row) % all.size()]; }
  };
  TraceRouting(Trace trace, Tokens sources, Tokens others)
      : trace_(std::move(trace)), sources_(std::move(sources)), others_(std::move(others)) {}

  void Begin(Tokens& tokens, size_t rows, bool is_little);
  void ApplyRow(size_t t, size_t row, size_t layer, Routing& routing) const;
  std::span<const ExpertId> Predicted(size_t t, size_t layer, size_t distance,
                                      bool is_little) const;

  Trace trace_;
  Tokens sources_;  // without an encoder none
  Tokens others_;
  bool was_little_ = false;
};

}  // namespace moestro
