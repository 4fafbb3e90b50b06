// SPDX-License-Identifier: MIT
#include "text/drafting_stepper.h"

#include <algorithm>
#include <utility>

namespace moestro {

Result<std::span<const float>> DraftingStepper::Append(std::span<const Token> tokens) {
  if (tokens.size() == 1 && taken_ < tokens_.size() && tokens_[taken_] == tokens.front()) {
    return Row(taken_++);
  }
  TRY_STATUS(Finish());
  if (tokens.size() == 1) return Begin(tokens.front());
  return rows_.Append(tokens);
}

// Evaluates the token, with a draft behind it if a draft is expected to pay.
Result<std::span<const float>> DraftingStepper::Begin(Token token) {
  const uint32_t room = rows_.n_ctx() - std::min(rows_.n_ctx(), rows_.position() + 1);
  const uint32_t most = std::min(drafts_.wanted(), room);
  if (most > 0) {
    text_.assign_range(rows_.tokens());
    text_.push_back(token);
    TRY_STATUS(drafts_.Propose(text_, most));
  }
  const double start = clock_();
  if (drafts_.tokens().empty()) {
    Result<std::span<const float>> logits = rows_.Append({&token, 1});
    if (logits) drafts_.Plain(clock_() - start);
    return logits;
  }
  std::vector<Token> all = {token};
  all.append_range(drafts_.tokens());
  const uint32_t position = rows_.position();
  Result<std::span<const float>> logits = rows_.AppendRows(all, drafts_.TakeForeseen());
  if (!logits) drafts_.Discard();
  TRY(logits_, std::move(logits));
  first_ = position;
  step_seconds_ = clock_() - start;
  tokens_ = std::move(all);
  taken_ = 1;
  return Row(0);
}

std::span<const float> DraftingStepper::Row(size_t row) const {
  const size_t n_vocab = logits_.size() / tokens_.size();
  return logits_.subspan(row * n_vocab, n_vocab);
}

uint32_t DraftingStepper::position() const {
  return tokens_.empty() ? rows_.position() : first_ + static_cast<uint32_t>(taken_);
}

Status DraftingStepper::Rewind(uint32_t position) {
  TRY_STATUS(Finish());
  return rows_.Rewind(position);
}

Status DraftingStepper::Finish() {
  if (tokens_.empty()) return {};
  const Status rewound = rows_.Rewind(position());
  drafts_.Round(step_seconds_, static_cast<uint32_t>(taken_ - 1));
  tokens_.clear();
  taken_ = 0;
  return rewound;
}

}  // namespace moestro
