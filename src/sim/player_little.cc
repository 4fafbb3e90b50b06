// SPDX-License-Identifier: MIT
// Steps with fewer experts first, as the engine computes them (engine/engine_little.cc).
#include <algorithm>
#include <vector>

#include "sim/player.h"

namespace moestro {

bool Player::is_for_little(const Pass& step) const {
  return little_.is_on() && std::ranges::all_of(step.tokens, [this](size_t t) {
           return trace_.phase(t) == Phase::kDecode;
         });
}

double Player::DecodeLittleFirst(const Pass& step) {
  protocol_->BeginStep(little_);
  DecodePass({.tokens = step.tokens, .is_little = true});
  double seconds = ComputeSeconds(info_.little);
  Pass again;
  for (const size_t t : step.tokens) {
    if (!judge_.Keeps(trace_.confidence(t))) again.tokens.push_back(t);
  }
  if (counts_) {
    result_.again += again.tokens.size();
    result_.kept += step.tokens.size() - again.tokens.size();
  }
  if (again.tokens.empty()) return seconds;
  DecodeAgain(again);
  return seconds + ComputeSeconds(info_.shape().n_used);
}

void Player::DecodeAgain(const Pass& again) {
  std::vector<std::vector<ExpertId>> foreseen(info_.shape().n_layer);  // [layer][row][K]
  for (size_t l = 0; l < foreseen.size(); ++l) {
    for (const size_t t : again.tokens) foreseen[l].append_range(trace_.little_experts(t, l));
  }
  protocol_->BeginStep({});
  if (options_.fetches) {
    protocol_->Foresee(foreseen, static_cast<uint32_t>(again.tokens.size()));
    machine_.Pump();
  }
  DecodePass(again);
}

double Player::ComputeSeconds(uint32_t n_used) const {
  const double left_out = 1.0 - static_cast<double>(n_used) / info_.shape().n_used;
  return options_.costs.compute * (1.0 - options_.costs.expert_share * left_out);
}

}  // namespace moestro
