// SPDX-License-Identifier: MIT
// Collects what an engine's router decides into a Trace.
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
  // Watches `engine` until it goes, and adds to `trace`, which has the model's shape and at most
  // the engine's look-ahead as its depth. The engine must outlive it.
  RouteRecorder(Engine& engine, Trace trace);
  ~RouteRecorder();
  RouteRecorder(const RouteRecorder&) = delete;
  RouteRecorder& operator=(const RouteRecorder&) = delete;

  // Evaluates `tokens` as a new sequence, the first `prefill` of them as a prompt and the others
  // one by one, and records them all. Errors: what Engine::Append() says; what had been recorded
  // before stays.
  Status Record(std::span<const Token> tokens, size_t prefill);

  const Trace& trace() const { return trace_; }

 private:
  struct Seen {
    Phase phase;
    Routing routing;
    std::vector<ExpertId> ahead;  // [distance - 1][token][K]
  };
  Status Keep(bool starts_sequence);

  Engine& engine_;
  Sequence sequence_;
  Trace trace_;
  std::vector<Seen> seen_;  // layer after layer, chunk after chunk
};

}  // namespace moestro
