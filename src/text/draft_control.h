// SPDX-License-Identifier: MIT
// Chooses how many tokens to draft before a step that checks them, from the cost of drafts and the
// recent share of right tokens. A step of more rows reads and computes the union of the rows'
// experts, so a wrong draft costs time. If drafts cost more than they save, none are made. The cost
// of trials is bounded. Pure.
#pragma once

#include <cstdint>

#include "text/draft_price.h"

namespace moestro {

// A round: some drafted tokens, and one step that computes these and the token before them.
struct DraftRound {
  double draft_seconds = 0.0;
  double step_seconds = 0.0;
  uint32_t drafted = 0;   // above 0
  uint32_t accepted = 0;  // the number of right tokens at the beginning
};

// The time when drafts begin.
enum class DraftStart : uint8_t {
  kTries,   // a few are tried, whatever they may cost
  kPriced,  // not before Expect() has named prices by which they may pay
};

class DraftControl {
 public:
  // `most`: tokens of a draft.
  explicit DraftControl(uint32_t most, DraftStart start = DraftStart::kTries);

  bool is_priced() const { return is_priced_; }
  // The prices that drafts are expected to have now. They count until drafts are measured, and
  // again once they have become much lower than they were then. REQUIRES: is_priced().
  void Expect(const DraftPrices& prices);

  // Seconds of a token without drafts and with them.
  struct Figures {
    double plain_seconds = 0.0;
    double drafted_seconds = 0.0;
    bool is_measured = false;  // false: what drafts are expected to take
  };
  // Zeros where no plain step has counted.
  Figures figures() const;

  // Tokens to draft for the next step; 0: a plain step.
  uint32_t Next() const;
  // The mean over the latest plain steps; 0: none has counted.
  double plain_seconds() const { return plain_seconds_; }
  // Notes the seconds of a step without drafts.
  void Plain(double seconds);
  void Round(const DraftRound& round);
  // A plain step takes another time from now on: measures it anew before the next draft.
  void Remeasure();

 private:
  // The time of a plain step depends on the experts in memory: it is long at first, and drafts push
  // out experts for a while. So plain steps are measured in blocks, and the first steps of a block
  // do not count.
  static constexpr uint32_t kPlainFirst = 16;
  static constexpr uint32_t kSkippedFirst = 8;
  static constexpr uint32_t kPlainBlock = 6;
  static constexpr uint32_t kSkippedInBlock = 3;

  // The time of a round with n drafts, in plain steps.
  double Price(uint32_t n) const { return 1.0 + n * (row_price_ + draft_price_); }
  // The mean number of tokens of a round: the accepted ones and the token that is sampled after
  // them.
  double Tokens(uint32_t n) const;
  uint32_t Best() const;
  bool is_trial() const { return Best() == 0 || gained_ <= 0.0; }
  // The time lost by drafts, and the time that may be lost, in plain steps.
  double LostSteps() const;
  double Allowed() const;
  bool MayPay() const;

  uint32_t most_;
  double plain_seconds_ = 0.0;  // mean of a step over counted steps
  uint32_t counted_ = 0;
  uint32_t plain_left_ = kPlainFirst;  // plain steps left in the current block
  // steps left in that block that do not count
  uint32_t to_skip_ = kSkippedFirst;
  uint32_t rounds_ = 0;  // since the last block
  // The time of one more row in a step and of drafting one token, in plain steps; guesses until
  // measured.
  double row_price_ = 0.6;
  double draft_price_ = 0.0;
  bool is_priced_;
  DraftPrices expected_;  // when drafts were measured first, or the latest ones until then
  bool is_expected_ = false;
  bool is_measured_ = false;
  // Experience with drafts, decayed.
  double tried_ = 2.0;
  double right_ = 1.0;
  double tokens_ = 0.0;         // made so far
  double lost_ = 0.0;           // seconds, in rounds that cost more than their tokens
  double gained_ = 0.0;         // seconds, by the latest rounds
  double trials_ = 0.0;         // tokens drafted in trials
  double round_seconds_ = 0.0;  // of all rounds
  double round_tokens_ = 0.0;   // that they made
};

}  // namespace moestro
