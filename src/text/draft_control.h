// SPDX-License-Identifier: MIT
// How many tokens to draft before a step that checks them, from what drafts cost and how many were
// right lately. A step of more rows reads and computes the union of their experts, so a wrong draft
// is not free: where drafts do not pay, none are made, and what trying costs is bounded. Pure.
#pragma once

#include <cstdint>

namespace moestro {

// Drafting some tokens and one step of all of them and of the token before.
struct DraftRound {
  double draft_seconds = 0.0;
  double step_seconds = 0.0;
  uint32_t drafted = 0;   // above 0
  uint32_t accepted = 0;  // the first so many were right
};

class DraftControl {
 public:
  // `most`: tokens of a draft.
  explicit DraftControl(uint32_t most) : most_(most) {}

  // Tokens to draft for the next step; 0: it is to be a plain one.
  uint32_t Next() const;
  // What a step without drafts took.
  void Plain(double seconds);
  void Round(const DraftRound& round);

 private:
  // What a plain step takes changes with what is in memory: it is long at first, and drafts crowd
  // out experts for a while. So it is measured in blocks, whose first steps do not count.
  static constexpr uint32_t kPlainFirst = 16;
  static constexpr uint32_t kSkippedFirst = 8;
  static constexpr uint32_t kPlainBlock = 6;
  static constexpr uint32_t kSkippedInBlock = 3;

  // Of a round with n drafts, in plain steps' time.
  double Price(uint32_t n) const { return 1.0 + n * (row_price_ + draft_price_); }
  // Tokens that it makes on average: those accepted and the one that is sampled after them.
  double Tokens(uint32_t n) const;
  uint32_t Best() const;
  bool is_trial() const { return Best() == 0 || gained_ <= 0.0; }
  // In plain steps, what was lost and what may be.
  double LostSteps() const;
  double Allowed() const;

  uint32_t most_;
  double plain_seconds_ = 0.0;  // of a step, average of those that counted
  uint32_t counted_ = 0;
  uint32_t plain_left_ = kPlainFirst;  // of the block of plain steps that is due
  uint32_t to_skip_ = kSkippedFirst;   // of these, at its beginning
  uint32_t rounds_ = 0;                // since the last block
  // A row more in a step, and drafting a token, in plain steps' time; guesses until measured.
  double row_price_ = 0.6;
  double draft_price_ = 0.0;
  // Experience with drafts, decayed.
  double tried_ = 2.0;
  double right_ = 1.0;
  double tokens_ = 0.0;  // made so far
  double lost_ = 0.0;    // seconds, by rounds that cost more than their tokens
  double gained_ = 0.0;  // seconds, by the latest rounds
  double trials_ = 0.0;  // tokens drafted while it was not known to pay
};

}  // namespace moestro
