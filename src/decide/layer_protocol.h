// SPDX-License-Identifier: MIT
// The order of decisions around one layer, written once: the engine and the simulator run this
// code, each with its own ExpertHolder. For every layer of a step:
//
//   plan = protocol.AfterRouting(...)   policies' clock, useless prefetches ended, plan made
//   ... the caller asks for the experts of the plan, in its order ...
//   protocol.Prefetch()                 requests for later layers, behind the layer's own
//
// Pure but for what the holder does. Thread rule: the holder's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/batch.h"
#include "core/ids.h"
#include "core/layer_plan.h"
#include "core/routing.h"
#include "decide/layer_planner.h"
#include "decide/prefetch_planner.h"

namespace moestro {

// Whoever keeps experts in slots.
class ExpertHolder {
 public:
  virtual ~ExpertHolder() = default;
  // In memory or on its way there.
  virtual bool contains(ExpertKey key) const = 0;
  // The decode's clock and what is predicted, for the replacement policies.
  virtual void BeginLayer(LayerId layer) = 0;
  virtual void Predict(LayerId layer, std::span<const ExpertId> experts) = 0;
  // Pins an expert for a later layer, and starts reading it if it is absent. False: no room.
  virtual bool Prefetch(ExpertKey key) = 0;
  // Ends a prefetch: what has not been read of it yet is not read.
  virtual void Withdraw(ExpertKey key) = 0;
  // Ends a prefetch that the layer's own request has taken over.
  virtual void Release(ExpertKey key) = 0;
  // True once all of a prefetched expert has been read.
  virtual bool is_complete(ExpertKey key) const = 0;
};

class LayerProtocol {
 public:
  // What one layer's routers have said about a step.
  struct Routed {
    LayerId layer;
    const Routing& routing;
    std::span<const RowKind> kinds;       // [rows]
    std::span<const ExpertId> predicted;  // [distance - 1][row][K]; empty: not evaluated
  };

  // Both must outlive this.
  LayerProtocol(PrefetchPlanner& planner, ExpertHolder& holder, uint32_t layers);

  LayerPlan AfterRouting(const Routed& routed);
  // REQUIRES: every expert of the plan has been asked for.
  void Prefetch();
  // Ends all prefetches: the step ended early.
  void Clear();

 private:
  void Learn(const Routed& routed);

  PrefetchPlanner& planner_;
  ExpertHolder& holder_;
  std::vector<std::vector<ExpertKey>> held_;  // [layer]: prefetched and pinned
  size_t layer_ = 0;
  bool decodes_ = false;  // the layer has decode rows
  // Scratch: the routing of the decode rows.
  std::vector<ExpertId> chosen_;
  std::vector<ExpertId> predicted_;
};

}  // namespace moestro
