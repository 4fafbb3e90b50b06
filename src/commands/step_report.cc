// SPDX-License-Identifier: MIT
#include "commands/step_report.h"

#include <cstddef>
#include <optional>

#include "base/text.h"

namespace moestro {

std::string DescribeOneStepKl(const OneStepKl& kl, double wish, bool is_exact) {
  if (is_exact) return "quality  exact, nothing to check\n";
  if (kl.tokens() == 0) {
    return Format("quality  not checked: each {}th token is, and there were fewer\n", kCheckEvery);
  }
  const auto se = kl.error();
  return Format(
      "quality  one-step KL {:.2g}{}: each {}th token, {} in all, also evaluated exactly on the "
      "same history; a mean KL of {} was wished\n",
      kl.mean(), se ? Format(" ± {:.1g}", *se) : "", kCheckEvery, kl.tokens(), wish);
}

void AddOneStepKl(Json& object, const OneStepKl& kl, double wish) {
  object.Set("wished_kl", wish)
      .Set("one_step_kl", kl.tokens() > 0 ? Json(kl.mean()) : Json())
      .Set("one_step_kl_se", kl.error() ? Json(*kl.error()) : Json())
      .Set("one_step_kl_tokens", kl.tokens());
}

namespace {

std::string WeightsOf(const LayerPlan& plan, const PlannedExpert& expert) {
  std::string text;
  for (size_t i = 0; i < plan.pair_of.size(); ++i) {
    const uint32_t pair = plan.pair_of[i];
    if (pair < expert.first_pair || pair >= expert.first_pair + expert.n_pairs) continue;
    if (!text.empty()) text += ' ';
    if (plan.n_rows > 1) text += Format("{}:", i / plan.n_used);
    text += Format("{:.3f}", plan.weights[i]);
  }
  return text;
}

std::string WhereFrom(const PlannedExpert& expert, std::span<const std::string> devices) {
  std::string place = expert.is_present ? "memory" : "disk";
  if (expert.place == Place::kDevice) place = devices[expert.device];
  if (expert.place == Place::kCopied) place += " to " + devices[expert.device];
  return expert.key.copy == 0 ? place : "low, " + place;
}

// Predicted and measured times of the lanes; empty without a device.
std::string LanesText(const LayerPlan& plan, std::span<const std::string> devices) {
  const LaneTimes& p = plan.predicted;
  if (p.seconds() <= 0.0) return "";
  const auto us = [](double seconds) { return seconds * 1e6; };
  std::string text =
      Format("\n           predicted us: CPU {:.0f}, disk {:.0f}", us(p.host), us(p.disk));
  for (size_t d = 0; d < p.devices.size(); ++d) {
    text += Format(", {} {:.0f}, copies to it {:.0f}", devices[d], us(p.devices[d].compute),
                   us(p.devices[d].copy));
  }
  // Rows that stay on the device are not waited for.
  if (plan.took.seconds() <= 0.0) return text + "; not waited for";
  text += Format("; took: CPU {:.0f}", us(plan.took.host));
  for (size_t d = 0; d < plan.took.devices.size(); ++d) {
    text += Format(", {} {:.0f}", devices[d], us(plan.took.devices[d].compute));
  }
  return text;
}

}  // namespace

void PlanLog::Note(const LayerPlan& plan) {
  if (plan.layer.value == 0) plans_.clear();
  plans_.push_back(plan);
}

std::string PlanLog::Text(std::span<const std::string> devices) const {
  std::string text = "plans of the last step: expert (where from, weight by row)\n";
  for (const LayerPlan& plan : plans_) {
    text += Format("layer {:3}:", plan.layer.value);
    for (const PlannedExpert& expert : plan.experts) {
      text += Format("  {} ({}, {})", expert.key.expert.value, WhereFrom(expert, devices),
                     WeightsOf(plan, expert));
    }
    for (const SkippedExpert& expert : plan.skipped) {
      text += Format("  {} ({})", expert.expert.value,
                     expert.need == Need::kDrop ? "dropped" : "skipped");
    }
    text += LanesText(plan, devices) + '\n';
  }
  return text;
}

}  // namespace moestro
