// SPDX-License-Identifier: MIT
// Passes on the choices of an engine's routers, token by token, during the run. A recorder keeps
// the routing of one chunk at most.
//
// Thread rule: the engine's thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "engine/engine.h"
#include "trace/trace.h"

namespace moestro {

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

}  // namespace moestro
