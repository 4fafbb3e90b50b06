// SPDX-License-Identifier: MIT
#include "serve/running_text.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>

namespace moestro {

RunningText::RunningText(std::shared_ptr<Job> job, std::unique_ptr<TokenFilter> grammar,
                         Sequence sequence, const Vocab& vocab, const Clock& clock)
    : job_(std::move(job)),
      sampler_(job_->TakeSampler()),
      sequence_(std::move(sequence)),
      vocab_(vocab),
      clock_(clock),
      tokens_(job_->options().prompt),
      n_prompt_(tokens_.size()),
      cached_(sequence_.position()),
      stop_(job_->options().generate.stops),
      began_(clock()) {
  if (grammar) sampler_.SetGrammar(std::move(grammar));
  sampler_.Observe(job_->options().prompt);
}

bool RunningText::Take(std::span<const float> logits, uint32_t n_ctx) {
  told_ = clock_();
  if (generated() == 0) first_token_ = told_;
  if (job_->options().generate.max_tokens == 0) {
    End(StopReason::kLimit);
    return true;
  }
  const Result<Token> token = sampler_.Pick(logits);
  if (!token) {
    Fail(token.error());
    return true;
  }
  const std::optional<StopReason> end =
      vocab_.is_end(*token) ? StopReason::kEndToken : Add(*token, logits, n_ctx);
  if (end) End(*end);
  return end.has_value();
}

std::optional<StopReason> RunningText::Add(Token token, std::span<const float> logits,
                                           uint32_t n_ctx) {
  const JobOptions& options = job_->options();
  tokens_.push_back(token);
  std::vector<TokenLogprob> logprobs;
  if (options.wants_logprobs) {
    logprobs.push_back(LogprobsOf(logits, token, options.top_logprobs, vocab_));
  }
  const std::string piece = options.spells_control ? vocab_.Spelling(token) : vocab_.Piece(token);
  Say(stop_.Push(utf8_.Push(piece)), std::move(logprobs));
  if (stop_.found()) return StopReason::kStopString;
  if (std::cmp_greater_equal(generated(), options.generate.max_tokens) &&
      options.generate.max_tokens >= 0) {
    return StopReason::kLimit;
  }
  if (tokens_.size() > n_ctx) return StopReason::kContextFull;
  return std::nullopt;
}

void RunningText::Say(std::string text, std::vector<TokenLogprob> logprobs) {
  if (text.empty() && logprobs.empty()) return;
  job_->Tell(JobText{.text = std::move(text), .logprobs = std::move(logprobs)});
}

void RunningText::End(StopReason reason) {
  std::string rest = stop_.Push(utf8_.Flush());
  if (!stop_.found()) rest += stop_.Flush();
  Say(std::move(rest), {});
  job_->Tell(JobEnd{.reason = reason,
                    .stop = stop_.which(),
                    .usage = {.prompt_tokens = n_prompt(),
                              .cached_tokens = cached_,
                              .completion_tokens = generated(),
                              .prompt_seconds = first_token_ - began_,
                              .completion_seconds = clock_() - first_token_}});
}

Sequence RunningText::GiveUp(Sequence empty) {
  std::swap(sequence_, empty);
  return empty;
}

TokenLogprob LogprobsOf(std::span<const float> logits, Token chosen, uint32_t top,
                        const Vocab& vocab) {
  const float highest = std::ranges::max(logits);
  const double sum = std::accumulate(logits.begin(), logits.end(), 0.0, [&](double s, float l) {
    return s + std::exp(static_cast<double>(l) - highest);
  });
  const double log_sum = highest + std::log(sum);
  const auto candidate = [&](Token token) {
    const double logprob = logits[static_cast<size_t>(token)] - log_sum;
    return TokenLogprob::Candidate{
        .token = token, .bytes = vocab.Spelling(token), .logprob = static_cast<float>(logprob)};
  };
  TokenLogprob all{.chosen = candidate(chosen), .top = {}};
  std::vector<Token> best(logits.size());
  std::iota(best.begin(), best.end(), 0);
  const auto n = static_cast<std::ptrdiff_t>(std::min<size_t>(top, best.size()));
  std::partial_sort(best.begin(), best.begin() + n, best.end(), [&](Token a, Token b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  for (std::ptrdiff_t i = 0; i < n; ++i) all.top.push_back(candidate(best[static_cast<size_t>(i)]));
  return all;
}

}  // namespace moestro
