// SPDX-License-Identifier: MIT
#include "decide/draft_control.h"

#include <algorithm>
#include <cmath>

namespace moestro {
namespace {

constexpr uint32_t kPlainFirst = 4;         // plain steps before the first draft, to compare with
constexpr uint32_t kPlainEvery = 32;        // and one after so many rounds
constexpr double kLeastGain = 1.03;         // a smaller one is noise
constexpr uint32_t kTrial = 2;              // tokens of a draft that is not known to pay
constexpr double kMostTrials = 16.0;        // tokens of such drafts, and
constexpr double kTrialsMore = 1.0 / 64.0;  // more of them for each token made
// What may be lost, in plain steps, at first and for each token made: 2 % of 512 tokens.
constexpr double kLossFirst = 6.0;
constexpr double kLossMore = 0.008;
constexpr double kWeight = 0.25;  // of the latest measurement in an average
constexpr double kKeep = 0.9;     // of the experience with drafts, for each round

void Average(double& average, double latest) { average += kWeight * (latest - average); }

}  // namespace

double DraftControl::Tokens(uint32_t n) const {
  const double p = right_ / tried_;
  double tokens = 1.0;
  for (uint32_t i = 1; i <= n; ++i) tokens += std::pow(p, i);
  return tokens;
}

uint32_t DraftControl::Best() const {
  uint32_t best = 0;
  double best_rate = kLeastGain;
  for (uint32_t n = 1; n <= most_; ++n) {
    const double rate = Tokens(n) / Price(n);
    if (rate <= best_rate) continue;
    best = n;
    best_rate = rate;
  }
  return best;
}

double DraftControl::Allowed() const { return kLossFirst + kLossMore * tokens_; }

uint32_t DraftControl::Next() const {
  if (plain_steps_ < kPlainFirst || rounds_since_plain_ >= kPlainEvery) return 0;
  const uint32_t best = Best();
  const uint32_t n = best > 0 ? best : std::min(kTrial, most_);
  // All of it may be wrong.
  if (lost_ + Price(n) - 1.0 > Allowed()) return 0;
  if (best == 0 && trials_ + n > kMostTrials + kTrialsMore * tokens_) return 0;
  return n;
}

void DraftControl::Plain(double seconds) {
  if (plain_steps_ == 0) plain_seconds_ = seconds;
  Average(plain_seconds_, seconds);
  ++plain_steps_;
  rounds_since_plain_ = 0;
  tokens_ += 1.0;
}

void DraftControl::Round(const DraftRound& round) {
  ++rounds_since_plain_;
  const double made = round.accepted + 1.0;
  tokens_ += made;
  if (Best() == 0) trials_ += round.drafted;
  // Where one was wrong, those behind it say nothing.
  tried_ = kKeep * tried_ + std::min(round.accepted + 1, round.drafted);
  right_ = kKeep * right_ + round.accepted;
  if (plain_seconds_ <= 0.0) return;
  Average(row_price_, (round.step_seconds / plain_seconds_ - 1.0) / round.drafted);
  row_price_ = std::max(row_price_, 0.0);
  Average(draft_price_, round.draft_seconds / plain_seconds_ / round.drafted);
  const double cost = (round.draft_seconds + round.step_seconds) / plain_seconds_;
  lost_ = std::max(0.0, lost_ + cost - made);
}

}  // namespace moestro
