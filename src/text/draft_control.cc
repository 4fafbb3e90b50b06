// SPDX-License-Identifier: MIT
#include "text/draft_control.h"

#include <algorithm>
#include <cmath>

namespace moestro {
namespace {

constexpr uint32_t kRoundsThatPay = 24;  // between two blocks of plain steps
constexpr uint32_t kRoundsThatTry = 2;
constexpr double kLeastGain = 1.03;         // a smaller one is noise
constexpr uint32_t kTrial = 2;              // tokens of a draft that has not been shown to pay
constexpr double kMostTrials = 16.0;        // most tokens of trial drafts, and
constexpr double kTrialsMore = 1.0 / 64.0;  // more of them for each token made
// Allowed loss, in plain steps, at first and for each token made: 2 % of 512 tokens.
constexpr double kLossFirst = 5.0;
constexpr double kLossMore = 0.006;
constexpr double kWeight = 0.25;  // share of the latest measurement in an average
constexpr double kKeep = 0.9;     // share of earlier experience with drafts that each round keeps

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

double DraftControl::LostSteps() const {
  return plain_seconds_ > 0.0 ? lost_ / plain_seconds_ : 0.0;
}

double DraftControl::Allowed() const { return kLossFirst + kLossMore * tokens_; }

uint32_t DraftControl::Next() const {
  if (plain_left_ > 0) return 0;
  const uint32_t best = Best();
  const uint32_t n = is_trial() ? std::min(kTrial, most_) : best;
  // The loss if every drafted token is wrong must still be allowed.
  if (LostSteps() + Price(n) - 1.0 > Allowed()) return 0;
  if (is_trial() && trials_ + n > kMostTrials + kTrialsMore * tokens_) return 0;
  return n;
}

void DraftControl::Plain(double seconds) {
  tokens_ += 1.0;
  plain_left_ -= plain_left_ > 0 ? 1 : 0;
  if (to_skip_ > 0) {
    --to_skip_;
    return;
  }
  if (counted_ == 0) plain_seconds_ = seconds;
  ++counted_;
  Average(plain_seconds_, seconds);
}

void DraftControl::Round(const DraftRound& round) {
  const double made = round.accepted + 1.0;
  const bool was_trial = is_trial();
  tokens_ += made;
  if (was_trial) trials_ += round.drafted;
  // Drafted tokens behind the first wrong one were not tried.
  tried_ = kKeep * tried_ + std::min(round.accepted + 1, round.drafted);
  right_ = kKeep * right_ + round.accepted;
  ++rounds_;
  if (rounds_ >= (was_trial ? kRoundsThatTry : kRoundsThatPay)) {
    rounds_ = 0;
    plain_left_ = kPlainBlock;
    to_skip_ = kSkippedInBlock;
  }
  if (plain_seconds_ <= 0.0) return;  // a clock that stands still
  Average(row_price_, (round.step_seconds / plain_seconds_ - 1.0) / round.drafted);
  row_price_ = std::max(row_price_, 0.0);
  Average(draft_price_, round.draft_seconds / plain_seconds_ / round.drafted);
  const double gain = made * plain_seconds_ - round.draft_seconds - round.step_seconds;
  lost_ = std::max(0.0, lost_ - gain);
  gained_ = kKeep * gained_ + gain;
}

void DraftControl::Remeasure() {
  if (counted_ == 0) return;  // the first block goes on
  counted_ = 0;
  plain_left_ = kPlainBlock;
  to_skip_ = kSkippedInBlock;
}

}  // namespace moestro
