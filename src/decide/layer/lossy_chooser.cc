// SPDX-License-Identifier: MIT
#include "decide/layer/lossy_chooser.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "base/result.h"
#include "decide/layer/router.h"

namespace moestro {

LossyChooser::LossyChooser(const LossyOptions& options, const RouterSpec& router, bool has_low,
                           std::shared_ptr<const ExpertNorms> norms)
    : options_(options),
      router_(&router),
      has_low_(has_low),
      t1_(options.t1_of(has_low)),
      t2_(options.t2_of(has_low)),
      importance_(MakeImportance(options.importance, std::move(norms))) {}

uint32_t LossyChooser::candidates() const {
  if (options_.prefer_resident <= 0.0 && !little_.prefers_resident) return 0;
  return CandidatesOf(router_->n_expert, router_->n_used);
}

uint32_t LossyChooser::Prefer(ExpertLayerId layer, std::span<const RowKind> kinds,
                              const ExpertPresence& is_present, Routing& routing) {
  if (candidates() == 0) return 0;
  CHECK(routing.candidates.per_row == candidates());
  uint32_t replaced = 0;
  for (uint32_t row = 0; row < routing.n_tokens; ++row) {
    if (kinds[row] == RowKind::kDecode) replaced += PreferRow(layer, row, is_present, routing);
  }
  return replaced;
}

// Replaces experts of a row. Returns the number of replaced experts.
uint32_t LossyChooser::PreferRow(ExpertLayerId layer, uint32_t row,
                                 const ExpertPresence& is_present, Routing& routing) {
  const RoutingCandidates& c = routing.candidates;
  const size_t first = size_t{row} * c.per_row;
  double bonus = options_.prefer_resident * static_cast<double>(c.ranges[row]);
  // In a little step every present expert stands above every absent one. Experts that a table names
  // are further from the others than the row's range; an expert that groups exclude, at minus
  // infinity, stays there.
  if (little_.prefers_resident) {
    const float distance = c.scores[first] - c.scores[first + c.per_row - 1];
    bonus = 2.0 * static_cast<double>(std::isfinite(distance) ? distance : c.ranges[row]);
  }
  scores_.resize(c.per_row);
  for (uint32_t i = 0; i < c.per_row; ++i) {
    const ExpertKey own{.layer = layer, .expert = c.experts[first + i]};
    ExpertKey low = own;
    low.copy = kLowCopy;
    const bool is_here = is_present(own) || (has_low_ && is_present(low));
    scores_[i] = c.scores[first + i] + (is_here ? static_cast<float>(bonus) : 0.0F);
  }
  // The kept experts stay, the others are the best by their new scores; both in the router's order.
  const uint32_t kept = little_.prefers_resident ? 0 : std::min(options_.keep, routing.n_used);
  order_.resize(c.per_row - kept);
  std::iota(order_.begin(), order_.end(), kept);
  std::ranges::sort(order_, [this](uint32_t a, uint32_t b) {
    return scores_[a] > scores_[b] || (scores_[a] == scores_[b] && a < b);
  });
  order_.resize(routing.n_used - kept);
  std::ranges::sort(order_);
  if (order_.empty() || order_.back() < routing.n_used) return 0;  // the router's own choice
  const size_t at = size_t{row} * routing.n_used;
  uint32_t replaced = 0;
  for (uint32_t k = kept; k < routing.n_used; ++k) {
    const uint32_t chosen = order_[k - kept];
    replaced += chosen >= routing.n_used ? 1 : 0;
    routing.experts[at + k] = c.experts[first + chosen];
    routing.weights[at + k] = c.raw[first + chosen];
  }
  for (uint32_t k = 0; k < kept; ++k) routing.weights[at + k] = c.raw[first + k];
  WeighChosen(*router_, std::span(routing.weights).subspan(at, routing.n_used));
  return replaced;
}

Need LossyChooser::NeedOfMisses() const {
  switch (little_.misses) {
    case Misses::kRead:
      return Need::kOwn;
    case Misses::kLow:
      return Need::kLow;
    case Misses::kDrop:
      return Need::kDrop;
  }
  return Need::kOwn;
}

Need LossyChooser::NeedAt(double unimportance, double share) const {
  if (share < options_.drop_below) return Need::kDrop;
  if (unimportance <= t1_) return Need::kOwn;
  if (unimportance > t2_) return Need::kSkip;
  return has_low_ ? Need::kLow : Need::kOwn;
}

// Into unimportance_ and shares_.
void LossyChooser::JudgeRow(ExpertLayerId layer, std::span<const ExpertId> experts,
                            std::span<const float> weights) {
  contributions_.resize(experts.size());
  unimportance_.resize(experts.size());
  shares_.resize(experts.size());
  importance_->Contributions(layer, experts, weights, contributions_);
  Unimportance(contributions_, unimportance_);
  const float sum = std::accumulate(weights.begin(), weights.end(), 0.0F);
  for (size_t i = 0; i < experts.size(); ++i) {
    shares_[i] = sum > 0.0F ? static_cast<double>(weights[i] / sum) : 1.0;
  }
}

std::vector<Need> LossyChooser::NeedsOfPredicted(ExpertLayerId layer,
                                                 std::span<const ExpertId> experts,
                                                 std::span<const float> weights) {
  JudgeRow(layer, experts, weights);
  const Need least = NeedOfMisses();
  std::vector<Need> needs;
  for (size_t i = 0; i < experts.size(); ++i) {
    needs.push_back(std::max(NeedAt(static_cast<double>(unimportance_[i]), shares_[i]), least));
  }
  return needs;
}

RowNeeds LossyChooser::NeedsOf(ExpertLayerId layer, const Routing& routing,
                               std::span<const RowKind> kinds) {
  RowNeeds needs{.needs = std::vector<Need>(routing.experts.size(), Need::kOwn),
                 .has_low = has_low_,
                 .rescales = options_.rescales};
  const size_t k = routing.n_used;
  const bool is_usual = !little_.is_on();
  const Need least = NeedOfMisses();
  usual_.resize(std::max(usual_.size(), (size_t{layer.value} + 1) * router_->n_used));
  for (size_t row = 0; row < kinds.size(); ++row) {
    if (kinds[row] != RowKind::kDecode) continue;
    JudgeRow(layer, routing.experts_of(row), routing.weights_of(row));
    for (size_t i = 0; i < k; ++i) {
      const double share = shares_[i];
      const auto s = static_cast<double>(unimportance_[i]);
      needs.needs[row * k + i] = std::max(NeedAt(s, share), least);
      if (!is_usual) continue;
      Usual& usual = usual_[layer.value * k + i];
      const double part = usual.is_known ? 0.05 : 1.0;  // the last 20 rows or so
      usual.unimportance += part * (s - usual.unimportance);
      usual.share += part * (share - usual.share);
      usual.is_known = true;
    }
  }
  return needs;
}

Need LossyChooser::UsualNeed(ExpertLayerId layer, uint32_t k) const {
  const size_t at = size_t{layer.value} * router_->n_used + k;
  const Need least = NeedOfMisses();
  if (at >= usual_.size() || !usual_[at].is_known) return least;
  return std::max(NeedAt(usual_[at].unimportance, usual_[at].share), least);
}

std::optional<ExpertKey> Upgrades::Next(const LayerPlan& plan) {
  if (plan.layer.value == shape_.n_encoder) {
    ++step_;
    in_step_ = 0;
  }
  std::optional<ExpertKey> best;
  for (const PlannedExpert& expert : plan.experts) {
    if (expert.use != Use::kDecode || expert.key.copy != kLowCopy) continue;
    uint64_t& seen =
        seen_[size_t{expert.key.layer.value} * shape_.n_expert + expert.key.expert.value];
    const bool is_again = seen > 0 && step_ - seen <= kWindow;
    if (is_again && !best && in_step_ < kMostPerStep) {
      best = ExpertKey{.layer = expert.key.layer, .expert = expert.key.expert};
      ++in_step_;
      seen = 0;
    } else {
      seen = step_;
    }
  }
  return best;
}

}  // namespace moestro
