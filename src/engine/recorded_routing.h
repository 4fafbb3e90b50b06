// SPDX-License-Identifier: MIT
// Choices of routers, passed on during a run, and recorded ones in place of the routers.
//
// Thread rule: the engine's thread.
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
#include "engine/engine.h"
#include "engine/watchers.h"
#include "trace/trace.h"

namespace moestro {

// Passes on the choices of an engine's routers, token by token, during the run. A recorder keeps
// the routing of one chunk at most.

class RouteRecorder {
 public:
  // Watches `engine` until the destructor and passes every token to `sink`. `info` has the model's
  // shape, and its depth is at most the engine's look-ahead. With TraceInfo::little, tokens after
  // the prompt are evaluated twice, first with so many experts. The engine must outlive it.
  // REQUIRES: the engine has no little pass of its own.
  RouteRecorder(Engine& engine, TraceInfo info, TraceSink sink);
  ~RouteRecorder();
  RouteRecorder(const RouteRecorder&) = delete;
  RouteRecorder& operator=(const RouteRecorder&) = delete;

  // The sink's first error for a token that another caller had evaluated.
  const Status& status() const { return status_; }

  // Evaluates `tokens` as a new sequence, the first `prefill` of them as a prompt and the others
  // one by one; of a model with an encoder at least the source and the token behind it as a prompt.
  // Errors: those of Engine::Step() and of the sink; tokens passed on before that stay passed on.
  Status Record(std::span<const Token> tokens, size_t prefill);

 private:
  struct Seen {
    Phase phase;
    Routing routing;
    std::vector<ExpertId> ahead;       // [distance - 1][token][K or K']
    std::vector<float> ahead_weights;  // weights of `ahead`
  };
  // One token's rows, as in a TraceToken; zeros for layers that the token does not go through.
  struct Rows {
    std::vector<ExpertId> experts = {};
    std::vector<float> weights = {};
    std::vector<ExpertId> predicted = {};
    std::vector<float> predicted_weights = {};
    RoutingCandidates candidates = {};
  };
  void See(const SeenRouting& seen);
  Status EvaluateLittle(Token token);
  void TakeLittle();
  Rows RowsOfToken(uint32_t token) const;
  void WidenToModel(size_t used, Rows& rows) const;
  Rows LittleOfPrompt(const Rows& own) const;
  Status PassOn();

  Engine& engine_;
  Sequence sequence_;
  TraceInfo info_;
  TraceSink sink_;
  std::vector<Seen> seen_;  // layer after layer, of one chunk
  ExpertLayers layers_;     // layers that the chunk goes through
  Rows little_;             // of the next token's little pass
  float confidence_ = 1.0F;
  bool starts_sequence_ = false;
  Status status_;  // the sink's first error
};

// Recorded choices in place of a model's routers: real routing over synthetic weights, for
// measurements of speed that depend on the chosen experts.

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
