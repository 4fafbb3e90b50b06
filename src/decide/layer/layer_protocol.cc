// SPDX-License-Identifier: MIT
#include "decide/layer/layer_protocol.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/result.h"

namespace moestro {

LayerProtocol::LayerProtocol(PrefetchPlanner& planner, ExpertHolder& holder, uint32_t layers,
                             LossyRules lossy)
    : planner_(planner), holder_(holder), lossy_(lossy), held_(layers) {}

void LayerProtocol::BeginSequence() {
  is_first_prompt_ = true;
  planner_.BeginSequence();
  if (lossy_.choices != nullptr) lossy_.choices->BeginSequence();
}

void LayerProtocol::BeginStep(const LittleStep& little) {
  CHECK(lossy_.chooser != nullptr || (little.misses == Misses::kRead && !little.prefers_resident));
  if (lossy_.chooser != nullptr) lossy_.chooser->BeginStep(little);
  expected_.clear();
}

void LayerProtocol::Foresee(std::span<const std::vector<ExpertId>> by_layer, uint32_t rows) {
  CHECK(by_layer.size() == held_.size());
  planner_.Foresee(by_layer, rows, UsualCopies());
  RequestPredicted();
}

void LayerProtocol::AfterRouting(const Routed& routed, LayerPlan& plan) {
  layer_ = routed.layer.value;
  decodes_ = std::ranges::contains(routed.kinds, RowKind::kDecode);
  EndUpgrade();
  if (decodes_) is_first_prompt_ = false;
  if (decodes_) holder_.BeginLayer(routed.layer);
  MakePlan(routed, plan);
  if (!plan.learned.empty()) holder_.LearnPrompt(plan);
  // Withdraws prefetched experts that the router did not choose, so that their slots are free
  // before the layer's own requests.
  std::erase_if(held_[layer_], [&](ExpertKey key) {
    if (std::ranges::contains(plan.experts, key, &PlannedExpert::key)) return false;
    holder_.Withdraw(key);
    return true;
  });
  if (decodes_) Learn(routed);
}

void LayerProtocol::PlanBeside(const Routed& routed, LayerPlan& plan) {
  holder_.BeginLayer(routed.layer);
  layer_planner_.Plan(
      routed.layer, routed.routing, routed.kinds, [this](ExpertKey key) { return IsPresent(key); },
      {}, plan);
  plan.learned.clear();
}

void LayerProtocol::MakePlan(const Routed& routed, LayerPlan& plan) {
  const ExpertPresence is_present = [this](ExpertKey key) { return IsPresent(key); };
  const bool is_lossy =
      lossy_.choices != nullptr || (lossy_.chooser != nullptr && !lossy_.chooser->is_exact());
  if (!is_lossy) {
    layer_planner_.Plan(routed.layer, routed.routing, routed.kinds, is_present, {}, plan);
    plan.learned = PromptRows(routed);
    return;
  }
  ResidentModel* choices = lossy_.choices;
  if (choices != nullptr && decodes_) choices->BeginLayer(routed.layer);
  const uint32_t replaced =
      lossy_.chooser->Prefer(routed.layer, routed.kinds, is_present, routed.routing);
  layer_planner_.Plan(routed.layer, routed.routing, routed.kinds, is_present,
                      lossy_.chooser->NeedsOf(routed.layer, routed.routing, routed.kinds), plan);
  plan.n_replaced = replaced;
  plan.learned = PromptRows(routed);
  if (choices != nullptr) choices->Run(plan);
  if (lossy_.upgrades != nullptr && decodes_) upgrade_ = lossy_.upgrades->Next(plan);
  Count(plan);
}

// Policies learn from prompts after a sequence has begun alone and before a token is decoded:
// decode of other texts would lose by it (docs/decisions/0003-prefill-streams.md). With the
// standard half-life of 32 rows those before the last 128 weigh less than a sixteenth.
std::vector<ExpertId> LayerProtocol::PromptRows(const Routed& routed) const {
  constexpr size_t kMostRows = 128;
  if (!is_first_prompt_) return {};
  const std::vector<ExpertId>& all = routed.routing.experts;
  const size_t n = std::min(all.size(), kMostRows * routed.routing.n_used);
  return {all.end() - static_cast<std::ptrdiff_t>(n), all.end()};
}

// Ends the hold on the upgrade's slot; a read under way goes on.
void LayerProtocol::EndUpgrade() {
  if (upgrading_) holder_.Release(*std::exchange(upgrading_, std::nullopt));
}

void LayerProtocol::Count(const LayerPlan& plan) {
  for (const PlannedExpert& expert : plan.experts) {
    if (expert.use != Use::kDecode) continue;
    const bool is_low = expert.key.copy != 0;
    losses_.low += is_low;
    losses_.missing += is_low || !expert.is_present;
  }
  for (const SkippedExpert& expert : plan.skipped) {
    ++losses_.missing;
    ++(expert.need == Need::kDrop ? losses_.dropped : losses_.skipped);
  }
  losses_.replaced += plan.n_replaced;
}

// Predictors hear of decode rows only.
void LayerProtocol::Learn(const Routed& routed) {
  const uint32_t used = routed.routing.n_used;
  const size_t rows = routed.kinds.size();
  CHECK(rows > 0 && used > 0);
  chosen_.clear();
  predicted_.clear();
  const auto take = [&](std::span<const ExpertId> from, size_t row, std::vector<ExpertId>& to) {
    if (routed.kinds[row % rows] == RowKind::kDecode) {
      to.append_range(from.subspan(row * used, used));
    }
  };
  for (size_t r = 0; r < rows; ++r) take(routed.routing.experts, r, chosen_);
  for (size_t r = 0; r * used < routed.predicted.size(); ++r) take(routed.predicted, r, predicted_);
  const Predictor::Seen seen{.layer = routed.layer,
                             .rows = static_cast<uint32_t>(chosen_.size() / used),
                             .chosen = chosen_,
                             .ahead = predicted_};
  Expect(routed);
  planner_.Observe(seen, UsualCopies(), rows);
  planner_.ForEachPrediction([this](ExpertLayerId later, std::span<const ExpertId> experts) {
    holder_.Predict(later, experts);
    if (lossy_.choices != nullptr) lossy_.choices->Predict(later, experts);
  });
}

// Notes the copies that this step's rows will need of later layers' experts. The strongest need of
// several rows counts, as in plans.
void LayerProtocol::Expect(const Routed& routed) {
  expected_.clear();
  const bool is_known = routed.predicted_weights.size() == routed.predicted.size();
  if (lossy_.chooser == nullptr || lossy_.chooser->is_exact()) return;
  if (!is_known || !planner_.wants_ahead()) return;
  const size_t used = routed.routing.n_used;
  const size_t rows = routed.kinds.size();
  for (size_t r = 0; r * used < routed.predicted.size(); ++r) {
    if (routed.kinds[r % rows] != RowKind::kDecode) continue;
    const ExpertLayerId later{static_cast<uint16_t>(layer_ + 1 + r / rows)};
    const auto experts = routed.predicted.subspan(r * used, used);
    const std::vector<Need> needs = lossy_.chooser->NeedsOfPredicted(
        later, experts, routed.predicted_weights.subspan(r * used, used));
    for (size_t i = 0; i < used; ++i) {
      const ExpertKey key{.layer = later, .expert = experts[i]};
      const auto known = expected_.try_emplace(key, needs[i]).first;
      known->second = std::min(known->second, needs[i]);
    }
  }
}

CopyChoice LayerProtocol::UsualCopies() const {
  return [this](ExpertLayerId layer, ExpertId expert, uint32_t rank) -> std::optional<CopyId> {
    if (lossy_.chooser == nullptr) return CopyId{0};
    return UsualCopy({.layer = layer, .expert = expert}, rank);
  };
}

// Chooses a copy as ChooseCopy() in layer_planner.cc does, by the need that this step's rows are
// expected to have of the expert, or else by the usual need of a row's rank-th expert.
std::optional<CopyId> LayerProtocol::UsualCopy(ExpertKey own, uint32_t rank) const {
  const auto expected = expected_.find(own);
  const Need need =
      expected != expected_.end() ? expected->second : lossy_.chooser->UsualNeed(own.layer, rank);
  if (need == Need::kOwn || IsPresent(own)) return own.copy;
  ExpertKey low = own;
  low.copy = kLowCopy;
  if (need == Need::kLow || (lossy_.chooser->has_low() && IsPresent(low))) return kLowCopy;
  return std::nullopt;
}

bool LayerProtocol::IsPresent(ExpertKey key) const {
  return lossy_.choices != nullptr ? lossy_.choices->contains(key) : holder_.contains(key);
}

void LayerProtocol::Prefetch() {
  for (const ExpertKey key : held_[layer_]) holder_.Release(key);
  held_[layer_].clear();
  if (!decodes_) return;
  RequestPredicted();
  // The upgrade is read behind all prefetches; not in the last layer, after which no code would
  // release it.
  const std::optional<ExpertKey> upgrade = std::exchange(upgrade_, std::nullopt);
  if (!upgrade || layer_ + 1 == held_.size()) return;
  if (planner_.may_upgrade(*upgrade) && holder_.Prefetch(*upgrade)) upgrading_ = upgrade;
  // The model fetches the upgrade even if the holder had no room for it just now: room depends on
  // timing, and later choices must not.
  if (lossy_.choices != nullptr) lossy_.choices->Fetch(*upgrade);
  ++losses_.upgrades;
}

void LayerProtocol::RequestPredicted() {
  size_t unfinished = 0;
  for (const std::vector<ExpertKey>& keys : held_) {
    unfinished += static_cast<size_t>(
        std::ranges::count_if(keys, [this](ExpertKey key) { return !holder_.is_complete(key); }));
  }
  for (const PrefetchRequest& request : planner_.Requests(unfinished)) {
    if (holder_.Prefetch(request.key)) held_[request.key.layer.value].push_back(request.key);
  }
}

void LayerProtocol::Clear() {
  EndUpgrade();
  upgrade_.reset();
  for (std::vector<ExpertKey>& keys : held_) {
    for (const ExpertKey key : keys) holder_.Withdraw(key);
    keys.clear();
  }
  planner_.Clear();
}

}  // namespace moestro
