// SPDX-License-Identifier: MIT
// The order of decisions around one layer, written once: the engine and the simulator run this
// code, each with its own ExpertHolder. For every layer of a step:
//
//   plan = protocol.AfterRouting(...)   policies' clock, useless prefetches ended, plan made
//   ... the caller requests the experts of the plan, in its order ...
//   protocol.Prefetch()                 requests for later layers, behind the layer's own
//
// Pure except for the holder's calls. Thread rule: the holder's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/batch.h"
#include "core/ids.h"
#include "core/layer_plan.h"
#include "decide/ahead/prefetch_planner.h"
#include "decide/layer/layer_planner.h"
#include "decide/layer/lossy_chooser.h"
#include "decide/layer/lossy_options.h"
#include "decide/slots/resident_model.h"

namespace moestro {

// Keeps experts in slots.
class ExpertHolder {
 public:
  virtual ~ExpertHolder() = default;
  // Whether the expert is in memory or on its way there.
  virtual bool contains(ExpertKey key) const = 0;
  // The decode's clock and predicted experts, for the replacement policies.
  virtual void BeginLayer(ExpertLayerId layer) = 0;
  virtual void Predict(ExpertLayerId layer, std::span<const ExpertId> experts) = 0;
  // Passes a prompt's rows (LayerPlan::learned) to the policies; see LearnPrompt() in slot_table.h.
  virtual void LearnPrompt(const LayerPlan& plan) = 0;
  // Pins an expert for a later layer, and starts reading it if it is absent. False: no room.
  virtual bool Prefetch(ExpertKey key) = 0;
  // Ends a prefetch; parts that the disk has not begun to read are not read.
  virtual void Withdraw(ExpertKey key) = 0;
  // Ends a prefetch that the layer's own request has taken over.
  virtual void Release(ExpertKey key) = 0;
  // True once all of a prefetched expert has been read.
  virtual bool is_complete(ExpertKey key) const = 0;
};

// Parts that make plans lossy; without a chooser every plan is exact. `choices`: the model of
// memory that choices are made by, instead of the holder's contents of the moment, which depend on
// timing.
struct LossyRules {
  LossyChooser* chooser = nullptr;
  ResidentModel* choices = nullptr;  // only with a chooser
  Upgrades* upgrades = nullptr;      // null: no upgrades
};

class LayerProtocol {
 public:
  // Choices of one layer's router for a step, and of the routers evaluated ahead. Experts that give
  // way to resident ones change `routing`.
  struct Routed {
    ExpertLayerId layer;
    Routing& routing;
    std::span<const RowKind> kinds;       // [rows]
    std::span<const ExpertId> predicted;  // [distance - 1][row][K or K']; empty: not evaluated
    std::span<const float> predicted_weights = {};  // weights of `predicted`; empty: not known
  };

  // All arguments must outlive this.
  LayerProtocol(PrefetchPlanner& planner, ExpertHolder& holder, uint32_t layers,
                LossyRules lossy = {});

  void BeginSequence();
  // Call before a step's first layer. REQUIRES: a chooser, if a little step does not read every
  // miss.
  void BeginStep(const LittleStep& little);
  // Call after BeginStep(). Takes the experts that every layer of the step will probably need:
  // [layer][row][K], in router order. They are read ahead from now on. REQUIRES: all rows decode.
  void Foresee(std::span<const std::vector<ExpertId>> by_layer, uint32_t rows);
  // Whether no expert of the step may be left out, coarsened or replaced.
  bool is_exact() const { return lossy_.chooser == nullptr || lossy_.chooser->is_exact(); }
  // Number of candidates of each row that the routing must hold.
  uint32_t candidates() const {
    return lossy_.chooser != nullptr ? lossy_.chooser->candidates() : 0;
  }
  // Makes the layer's plan; one that is given again keeps its memory.
  void AfterRouting(const Routed& routed, LayerPlan& plan);
  LayerPlan AfterRouting(const Routed& routed) {
    LayerPlan plan;
    AfterRouting(routed, plan);
    return plan;
  }
  // Makes the plan of a layer beside a step's layers, a layer that predicts further tokens. No
  // predictor gets its routing, and nothing is prefetched behind it. REQUIRES: every row decodes.
  void PlanBeside(const Routed& routed, LayerPlan& plan);
  // REQUIRES: every expert of the plan has been requested.
  void Prefetch();
  // Ends all prefetches: the step ended early.
  void Clear();

  // Losses of decode rows since creation.
  const LossCounts& losses() const { return losses_; }

 private:
  void MakePlan(const Routed& routed, LayerPlan& plan);
  std::vector<ExpertId> PromptRows(const Routed& routed) const;
  void Learn(const Routed& routed);
  void Expect(const Routed& routed);
  void Count(const LayerPlan& plan);
  void EndUpgrade();
  void RequestPredicted();
  CopyChoice UsualCopies() const;
  bool IsPresent(ExpertKey key) const;
  std::optional<CopyId> UsualCopy(ExpertKey own, uint32_t rank) const;

  PrefetchPlanner& planner_;
  ExpertHolder& holder_;
  LossyRules lossy_;
  LayerPlanner layer_planner_;
  std::vector<std::vector<ExpertKey>> held_;  // [layer]: prefetched and pinned
  std::optional<ExpertKey> upgrade_;          // the layer's upgrade, to be requested
  // Expert requested at the layer before, whose slot is held until now.
  std::optional<ExpertKey> upgrading_;
  LossCounts losses_;
  size_t layer_ = 0;
  bool decodes_ = false;          // the layer has decode rows
  bool is_first_prompt_ = false;  // a sequence has begun alone, and nothing has been decoded since
  // Needs of decode rows for later layers' experts, by this token's own scores as the layer's input
  // predicts them. Source: HOBBIT. An expert that is absent has its rank's usual need.
  std::unordered_map<ExpertKey, Need> expected_;
  // Scratch: the routing of the decode rows.
  std::vector<ExpertId> chosen_;
  std::vector<ExpertId> predicted_;
};

}  // namespace moestro
