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

// Priced drafts: acceptance of trained drafters before any token was tried, as so many tokens; the
// acceptance that is hoped for where drafts are given another try.
constexpr double kTriedBefore = 4.0;
constexpr double kUsualAcceptance = 0.7;
constexpr double kHopedAcceptance = 0.75;
constexpr double kMuchLower = 0.8;  // prices that are worth another try, as a share

void Average(double& average, double latest) { average += kWeight * (latest - average); }

// The mean number of tokens of a round of n drafted ones, each right with probability `acceptance`.
double TokensAt(uint32_t n, double acceptance) {
  double tokens = 1.0;
  for (uint32_t i = 1; i <= n; ++i) tokens += std::pow(acceptance, i);
  return tokens;
}

}  // namespace

DraftControl::DraftControl(uint32_t most, DraftStart start)
    : most_(most), is_priced_(start == DraftStart::kPriced) {
  if (!is_priced_) return;
  tried_ = kTriedBefore;
  right_ = kTriedBefore * kUsualAcceptance;
}

void DraftControl::Expect(const DraftPrices& prices) {
  if (is_measured_ && prices.both() >= kMuchLower * expected_.both()) return;
  if (is_measured_) trials_ = 0.0;  // of dearer drafts
  expected_ = prices;
  row_price_ = prices.row;
  draft_price_ = prices.draft;
  is_expected_ = true;
  is_measured_ = false;
}

double DraftControl::Tokens(uint32_t n) const { return TokensAt(n, right_ / tried_); }

// Whether drafts would pay if they were as often right as is hoped for.
bool DraftControl::MayPay() const {
  if (!is_expected_) return false;
  for (uint32_t n = 1; n <= most_; ++n) {
    if (TokensAt(n, kHopedAcceptance) / Price(n) > kLeastGain) return true;
  }
  return false;
}

DraftControl::Figures DraftControl::figures() const {
  if (round_tokens_ > 0.0) {
    return {.plain_seconds = plain_seconds_,
            .drafted_seconds = round_seconds_ / round_tokens_,
            .is_measured = true};
  }
  const uint32_t n = std::max(Best(), 1U);
  return {.plain_seconds = plain_seconds_,
          .drafted_seconds = plain_seconds_ * Price(n) / Tokens(n)};
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
  if (plain_left_ > 0 || (is_priced_ && !MayPay())) return 0;
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
  round_seconds_ += round.draft_seconds + round.step_seconds;
  round_tokens_ += made;
  is_measured_ = true;
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
