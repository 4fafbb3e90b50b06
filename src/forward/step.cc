// SPDX-License-Identifier: MIT
// START HERE: the rows of a batch through all layers. A row is one token of one sequence; a prompt
// is many rows of one sequence. An expert is read once for all rows that need the expert.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "core/layer_plan.h"
#include "decide/layer/layer_planner.h"
#include "forward/dense/layer_graph.h"
#include "forward/forward.h"
#include "residency/leases.h"

namespace moestro {
namespace {

// Holds a layer's leases; however the layer ends, the leases end with it.
class LayerLeases {
 public:
  LayerLeases(LeaseStream& leases, Residency& residency, const LayerPlan& plan) : leases_(leases) {
    leases_.Begin(residency, plan);
  }
  LayerLeases(const LayerLeases&) = delete;
  LayerLeases& operator=(const LayerLeases&) = delete;
  ~LayerLeases() { leases_.LetAllGo(); }

 private:
  LeaseStream& leases_;
};

}  // namespace

Result<Forward::Pass> Forward::Begin(std::span<const StepRow> rows, std::span<const RowKind> kinds,
                                     const LittleStep& little, LayerBegins layer_begins,
                                     StepRows head) {
  Pass pass{.rows = rows,
            .kinds = kinds,
            .little = little,
            .layer_begins = std::move(layer_begins),
            .layers = LayersOf(rows),
            .head = head};
  pass.decodes = std::ranges::contains(kinds, RowKind::kDecode);
  pass.prompt_rows = static_cast<size_t>(std::ranges::count(kinds, RowKind::kPrompt));
  TRY_STATUS(experts_.BeginStep());
  // Nothing is read for layers that a device computes whole.
  const bool looks_ahead = pass.decodes && !experts_.are_all_whole();
  pass.look_ahead =
      std::max(looks_ahead ? parts_.planner.look_ahead() : 0, parts_.watchers.look_ahead);
  pass.read_ahead = ReadAhead(0, pass);  // before the first layer: experts that tokens name
  pass.read_ahead.Advance();
  TRY_STATUS(parts_.graph.SetRows(rows));  // embeddings -> hidden
  return pass;
}

Status Forward::Finish(Pass& pass) {
  TRY_STATUS(IsForTeam(pass) ? RunHeld(pass) : RunLayers(pass));
  return End(pass);
}

Result<bool> Forward::Advance(Pass& pass) {
  TRY_STATUS(pass.made_way);
  if (pass.aside) TRY_STATUS(parts_.graph.GiveRows(*std::exchange(pass.aside, std::nullopt)));
  TRY_STATUS(RunLayer(pass));
  if (!pass.layers.is_empty()) return false;
  TRY_STATUS(End(pass));
  return true;
}

Status Forward::MakeWay(Pass& pass, size_t n_rows) {
  pass.read_ahead = {};  // other rows need the slots
  if (!pass.made_way || (pass.aside && pass.aside->has_room_for(n_rows))) return {};
  pass.made_way = TakeAside(pass, n_rows);
  // The pass's own error, as of a table's read, is none of the others'; a lost device is
  // everybody's.
  const bool is_everybodys = !pass.made_way && pass.made_way.error().code == Errc::kDevice;
  return is_everybodys ? pass.made_way : Status();
}

Status Forward::TakeAside(Pass& pass, size_t n_rows) {
  if (pass.aside) TRY_STATUS(parts_.graph.GiveRows(*pass.aside));
  TRY(pass.aside, parts_.graph.TakeRows(n_rows));
  return {};
}

// Ends a pass whose layers have run.
Status Forward::End(const Pass& pass) {
  if (pass.rows.front().is_source) TRY_STATUS(parts_.graph.RememberSource());
  return parts_.graph.Finish();  // a device may still compute
}

LayerRange Forward::LayersOf(std::span<const StepRow> rows) const {
  const auto all = static_cast<uint16_t>(parts_.spec.n_main_layer());
  if (!parts_.spec.encoder) return {.first = 0, .end = all};
  const auto encoder = static_cast<uint16_t>(parts_.spec.encoder->n_layer);
  return rows.front().is_source ? LayerRange{.first = 0, .end = encoder}
                                : LayerRange{.first = encoder, .end = all};
}

// Whether threads may stay together: no graph of the pass needs ggml's threads, and no device's
// driver has threads of its own.
bool Forward::IsForTeam(const Pass& pass) const {
  return parts_.devices == nullptr &&
         parts_.graph.IsForTeam(pass.layers, pass.rows.size(), pass.look_ahead);
}

Status Forward::RunHeld(Pass& pass) {
  const TeamTime& team_time = parts_.team.time();
  const double before = parts_.clock() - team_time.seconds();
  Status ran;
  TRY_STATUS(parts_.team.Hold([&] { ran = RunLayers(pass); }));
  TRY_STATUS(ran);
  serial_.seconds += std::max(parts_.clock() - team_time.seconds() - before, 0.0);
  ++serial_.steps;
  return {};
}

Status Forward::RunLayers(Pass& pass) {
  while (!pass.layers.is_empty()) {
    const uint16_t whole = WholeLayers(pass);
    TRY_STATUS(whole > 0 ? RunWhole(whole, pass) : RunLayer(pass));
  }
  return {};
}

// Tells that the next layer begins, unless a stop was requested.
Status Forward::TellLayer(const Pass& pass) const {
  if (pass.layer_begins) TRY_STATUS(pass.layer_begins(pass.layers.first));
  if (parts_.stop.is_requested()) return Fail(Errc::kInterrupted, "stopped on request");
  return {};
}

Status Forward::RunLayer(Pass& pass) {
  TRY_STATUS(TellLayer(pass));
  const LayerId layer{pass.layers.first++};
  // The disk reads during the dense part: a prompt's experts of this layer, or experts likely to be
  // needed.
  const bool are_known =
      !pass.decodes || parts_.spec.layers[layer.value].feed_forward.has_token_experts;
  parts_.residency.PumpAhead(are_known ? ReadQueue::kAllThatWaits
                                       : parts_.planner.bytes_beside_dense());
  TRY_STATUS(parts_.graph.Attend(layer, pass.look_ahead));  // dense part, router logits
  return parts_.spec.has_experts(layer.value) ? RunExperts(layer, pass) : Status();
}

// Number of the next layers that the first device computes whole; 0: the next layer is none. For an
// observer of a layer, or another choice than the router's, rows must come to memory. The routers
// of later layers are not evaluated ahead from such layers.
uint16_t Forward::WholeLayers(const Pass& pass) {
  WholeGraph* const whole = parts_.graph.whole();
  const Watchers& watchers = parts_.watchers;
  if (whole == nullptr || watchers.look_ahead > 0 || pass.little.is_on()) return 0;
  if (watchers.routing || watchers.copies || watchers.experts || watchers.wants_candidates)
    return 0;
  if (!parts_.protocol.is_exact()) return 0;
  return whole->LayersFrom(pass.layers, pass.rows.size());
}

// Layers in one go on the first device, which also chooses the experts. The decisions that follow
// from its choices are made afterwards, in the order of layers, while the device computes the next
// part of the layers.
Status Forward::RunWhole(uint16_t n_layers, Pass& pass) {
  const LayerRange layers{.first = pass.layers.first,
                          .end = static_cast<uint16_t>(pass.layers.first + n_layers)};
  TRY_STATUS(TellLayer(pass));
  Status ran = RunParts(layers, pass);
  // Nothing may stay under way after an error, which counts more than one of this wait.
  if (!ran) {
    [[maybe_unused]] const Status ended = parts_.graph.Finish();
  }
  return ran;
}

Status Forward::RunParts(LayerRange layers, Pass& pass) {
  double before = parts_.clock();
  TRY_STATUS(
      parts_.graph.BeginWhole(layers, layers.end == pass.layers.end ? pass.head : StepRows()));
  while (pass.layers.first < layers.end) {
    TRY(const LayerRange part, parts_.graph.LandWhole());
    TRY(const bool are_the_rules, TakeChoices(part, pass.rows.size()));
    // Equal scores: the rule is the host's.
    if (!are_the_rules) return RunAgain(layers, LayerId{part.first}, pass);
    pass.layers.first = part.end;
    const double now = parts_.clock();
    const double seconds = (now - std::exchange(before, now)) / (part.end - part.first);
    for (uint16_t l = part.first; l < part.end; ++l) {
      if (parts_.spec.has_experts(l)) DecideWhole(LayerId{l}, pass, seconds);
    }
    if (part.end < layers.end) TRY_STATUS(TellLayer(pass));
  }
  return {};
}

// Runs layers that have run whole again, from the layer `from` on with borders. The decisions of
// the layers before that one are made.
Status Forward::RunAgain(LayerRange layers, LayerId from, Pass& pass) {
  TRY_STATUS(parts_.graph.GoBack());
  if (from.value > layers.first) {
    TRY_STATUS(parts_.graph.BeginWhole({.first = layers.first, .end = from.value}, {}));
    for (uint16_t done = layers.first; done < from.value;) {
      TRY(const LayerRange part, parts_.graph.LandWhole());
      done = part.end;
    }
  }
  while (pass.layers.first < layers.end) TRY_STATUS(RunLayer(pass));
  return {};
}

// Reads the choices of layers that have run whole. False: a choice is not the router's rule.
Result<bool> Forward::TakeChoices(LayerRange layers, size_t n_rows) {
  if (parts_.devices->whole()->mistakes_choice()) return false;
  chosen_there_.resize(layers.end - layers.first);
  for (uint16_t l = layers.first; l < layers.end; ++l) {
    if (!parts_.spec.has_experts(l)) continue;
    TRY(const WholeGraph::Choice choice, parts_.graph.ChoiceOf(LayerId{l}));
    const ExpertLayerId layer = parts_.spec.expert_layer(LayerId{l});
    Routing& routing = chosen_there_[l - layers.first];
    if (!parts_.devices->whole()->ExpertsOf(layer, choice.numbers, choice.are_experts,
                                            routing.experts)) {
      return false;
    }
    TRY(const bool is_rule, IsRule(LayerId{l}, choice, routing.experts));
    if (!is_rule) return false;
    routing.n_tokens = static_cast<uint32_t>(n_rows);
    routing.n_used = parts_.spec.router.n_used;
    routing.weights.assign(choice.weights.begin(), choice.weights.end());
    routing.candidates.Clear(0);
  }
  return true;
}

// Whether the router's rule gives a device's choices, experts [rows][K]. Of many rows the logits of
// those are read in which experts competed with equal scores.
Result<bool> Forward::IsRule(LayerId l, const WholeGraph::Choice& choice,
                             std::span<const ExpertId> experts) {
  const RouterSpec& router = parts_.spec.router;
  const ExpertLayerId layer = parts_.spec.expert_layer(l);
  if (choice.clear.empty()) return router_.IsRule(layer, choice.logits, experts);
  for (size_t row = 0; row < choice.clear.size(); ++row) {
    if (choice.is_clear(row, router)) continue;
    if (std::isnan(choice.clear[row])) return false;
    TRY(const std::span<const float> logits,
        parts_.graph.whole()->LogitsOf(l, static_cast<uint32_t>(row)));
    const auto its = experts.subspan(row * router.n_used, router.n_used);
    if (!router_.IsRule(layer, logits, its)) return false;
  }
  return true;
}

// The decisions of a layer that has run whole, in the order of RunExperts().
void Forward::DecideWhole(LayerId l, const Pass& pass, double seconds) {
  const Watchers& watchers = parts_.watchers;
  const ExpertLayerId layer = parts_.spec.expert_layer(l);
  Routing& routing = chosen_there_[l.value - (pass.layers.first - chosen_there_.size())];
  if (watchers.route) watchers.route({layer, routing, pass.kinds, {}, {}, false});
  parts_.protocol.AfterRouting({layer, routing, pass.kinds, {}, {}}, plan_);
  experts_.Place(plan_);
  parts_.protocol.Prefetch();
  experts_.DoneWhole(plan_, seconds);
  if (watchers.plan) watchers.plan(plan_);
}

// Reads for layers with experts from `first` on: all experts that the rows' tokens name or, where
// there are none, those of the next layer that a long prompt will need.
LeaseStream Forward::ReadAhead(uint32_t first, const Pass& pass) const {
  const RouterSpec& router = parts_.spec.router;
  std::vector<ExpertKey> keys = router_.KnownFrom(first, pass.rows);
  const Use use = keys.empty() || !pass.decodes ? Use::kPrefill : Use::kPrefetch;
  if (keys.empty() && first > 0) {
    keys = PlanReadAhead(ExpertLayerId{static_cast<uint16_t>(first - 1)},
                         parts_.spec.expert_layers_before(pass.layers.end), router.n_expert,
                         router.n_used, pass.prompt_rows);
  }
  if (parts_.devices != nullptr) {
    std::erase_if(keys, [this](ExpertKey key) { return parts_.devices->tier().contains(key); });
  }
  return {parts_.residency, keys, Urgency::kSpeculative, use};
}

Status Forward::RunExperts(LayerId l, Pass& pass) {
  const Watchers& watchers = parts_.watchers;
  const ExpertLayerId layer = parts_.spec.expert_layer(l);
  router_.Choose(layer, pass.rows, pass.little, routing_);  // experts with their weights
  if (pass.predicts) {
    parts_.protocol.PlanBeside({layer, routing_, pass.kinds, {}, {}}, plan_);
  } else {
    Decide(layer, pass);
  }
  const std::span<const float> scale = parts_.layers[layer.value].result_scale;
  if (!scale.empty()) ScaleWeights(scale, plan_);
  experts_.Place(plan_);  // on the CPU or on devices
  const LayerLeases held(leases_, parts_.residency, plan_);
  leases_.Advance();  // present experts are pinned, absent ones start to be read
  // Releases leases on this layer's experts.
  pass.read_ahead = pass.predicts ? LeaseStream() : ReadAhead(layer.value + 1U, pass);
  leases_.Advance();                               // takes the slots that became free
  if (!pass.predicts) parts_.protocol.Prefetch();  // reads for later layers, behind its own
  TRY_STATUS(experts_.Run(l, plan_, leases_, pass.read_ahead));
  if (pass.predicts) return {};
  if (watchers.plan) watchers.plan(plan_);
  experts_.Show(plan_);
  return {};
}

// Makes the layer's plan from its routing, and calls the observers of both.
void Forward::Decide(ExpertLayerId layer, const Pass& pass) {
  const Watchers& watchers = parts_.watchers;
  const LittleStep& little = pass.little;
  router_.DropOverCapacity(pass.rows, routing_);
  router_.ChooseAhead(layer, pass.rows, pass.look_ahead, little, ahead_);
  if (watchers.routing) watchers.routing(layer, routing_, ahead_);
  if (watchers.route) {
    watchers.route({layer, routing_, pass.kinds, ahead_.experts, ahead_.weights, little.is_on()});
  }
  if (little.is_on()) router_.Widen(layer, routing_);
  parts_.protocol.AfterRouting({layer, routing_, pass.kinds, ahead_.experts, ahead_.weights},
                               plan_);
  watchers.OverrideCopies(plan_);
}

}  // namespace moestro
