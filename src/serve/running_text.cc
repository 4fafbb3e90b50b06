// SPDX-License-Identifier: MIT
#include "serve/running_text.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <utility>

#include "base/log.h"
#include "engine/append.h"

namespace moestro {
namespace {

// The `n` likeliest tokens, in one pass, since a scored prompt needs them for each of its tokens.
std::vector<Token> Likeliest(std::span<const float> logits, uint32_t n) {
  const auto is_likelier = [&](Token a, Token b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  };
  std::vector<Token> best;  // likeliest first
  for (size_t i = 0; i < logits.size() && n > 0; ++i) {
    const auto token = static_cast<Token>(i);
    if (best.size() == n && !is_likelier(token, best.back())) continue;
    if (best.size() == n) best.pop_back();
    best.insert(std::ranges::upper_bound(best, token, is_likelier), token);
  }
  return best;
}

}  // namespace

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
  const JobOptions& options = job_->options();
  if (grammar && !options.quiet.end.empty()) {
    grammar = std::make_unique<QuietFilter>(std::move(grammar), options.quiet, vocab);
  }
  if (grammar) sampler_.SetGrammar(std::move(grammar));
  sampler_.Observe(options.prompt);
  if (options.scored_from == 0) {
    // A text's very first token follows nothing.
    constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();
    const Token first = options.prompt.front();
    scores_.push_back(
        {.chosen = {.token = first, .bytes = vocab.Spelling(first), .logprob = kUnknown},
         .top = {}});
  }
}

bool RunningText::IsKeptAfter(uint32_t n, uint32_t every) const {
  const std::vector<uint32_t>& checkpoints = job_->options().checkpoints;
  if (every > 0 && n % every == 0) return true;
  // A prompt without checkpoints is kept for its own repetition, without the last token, which is
  // computed in any case.
  if (checkpoints.empty()) return n + 1 == n_prompt_;
  return std::ranges::binary_search(checkpoints, n);
}

void RunningText::Score(uint32_t position, std::span<const float> logits) {
  const JobOptions& options = job_->options();
  // The scores of a prompt that is computed again are complete up to some position.
  const bool is_next = position + 1 == *options.scored_from + scores_.size();
  if (has_said_prompt_ || !is_next) return;
  scores_.push_back(LogprobsOf(logits, tokens_[position + 1], options.top_logprobs, vocab_));
}

void RunningText::SayPrompt() {
  if (std::exchange(has_said_prompt_, true) || !job_->options().scores_prompt()) return;
  job_->Tell(JobPrompt{.logprobs = std::exchange(scores_, {})});
}

void RunningText::SayProgress(uint32_t processed) {
  if (!job_->options().wants_progress || has_said_prompt_) return;
  job_->Tell(PromptProgress{.total = n_prompt(),
                            .cached = cached_,
                            .processed = processed,
                            .seconds = clock_() - began_});
}

bool RunningText::Take(std::span<const float> logits, uint32_t n_ctx) {
  told_ = clock_();
  if (drafting_) ++drafting_->taken;
  if (generated() == 0) {
    first_token_ = told_;
    SayProgress(n_prompt());
    SayPrompt();
  }
  if (const std::optional<StopReason> end = EndAfter(n_ctx)) {
    End(*end);
    return true;
  }
  const JobOptions& options = job_->options();
  const bool may_end = generated() >= options.min_tokens;
  const Result<Token> token =
      sampler_.Pick(logits, may_end ? std::span<const Token>() : options.early_ends);
  if (!token) {
    Fail(token.error());
    return true;
  }
  const bool is_end = vocab_.is_end(*token) || std::ranges::contains(options.end_tokens, *token);
  const std::optional<StopReason> end = is_end ? StopReason::kEndToken : Add(*token, logits, n_ctx);
  if (end) End(*end);
  return end.has_value();
}

// The reason why no further token fits; none: one fits.
std::optional<StopReason> RunningText::EndAfter(uint32_t n_ctx) const {
  const int64_t most = job_->options().generate.max_tokens;
  if (most >= 0 && std::cmp_greater_equal(generated(), most)) return StopReason::kLimit;
  if (tokens_.size() >= n_ctx) return StopReason::kContextFull;
  if (generated() > 0 && is_out_of_time()) return StopReason::kTimeLimit;
  return std::nullopt;
}

bool RunningText::is_out_of_time() const {
  const double most_writing = job_->options().writing_seconds;
  const bool has_written = most_writing > 0.0 && has_line_ && told_ - first_token_ > most_writing;
  return has_written || SteadySeconds() > job_->deadline();
}

std::optional<StopReason> RunningText::Add(Token token, std::span<const float> logits,
                                           uint32_t n_ctx) {
  const JobOptions& options = job_->options();
  tokens_.push_back(token);
  ++unsaid_tokens_;
  job_->CountToken();
  std::vector<TokenLogprob> logprobs;
  if (options.wants_logprobs) {
    logprobs.push_back(LogprobsOf(logits, token, options.top_logprobs, vocab_));
  }
  const std::string piece = options.spells_control ? vocab_.Spelling(token) : vocab_.Piece(token);
  has_line_ = has_line_ || piece.contains('\n');
  std::string text = utf8_.Push(piece);
  if (generated() > options.min_tokens) text = stop_.Push(text);
  Say(std::move(text), std::move(logprobs));
  if (stop_.found()) return StopReason::kStopString;
  return EndAfter(n_ctx);
}

void RunningText::Say(std::string text, std::vector<TokenLogprob> logprobs) {
  if (text.empty() && logprobs.empty()) return;
  job_->Tell(JobText{.text = std::move(text),
                     .logprobs = std::move(logprobs),
                     .tokens = std::exchange(unsaid_tokens_, 0)});
}

void RunningText::End(StopReason reason) {
  is_over_ = true;
  std::string rest = stop_.Push(utf8_.Flush());
  if (!stop_.found()) rest += stop_.Flush();
  Say(std::move(rest), {});
  job_->Tell(JobEnd{.reason = reason,
                    .stop = stop_.which(),
                    .usage = {.prompt_tokens = n_prompt(),
                              .cached_tokens = cached_,
                              .recomputed_tokens = recomputed_,
                              .completion_tokens = generated(),
                              .drafted_tokens = drafting_ ? drafting_->all_proposed() : 0,
                              .accepted_drafts = drafting_ ? drafting_->all_accepted() : 0,
                              .prompt_seconds = first_token_ - began_,
                              .completion_seconds = clock_() - first_token_}});
}

void RunningText::DraftWith(const DraftOptions& options, Engine& engine) {
  if (options.is_on()) {
    drafting_ = std::make_unique<Drafting>(options, engine, sequence_, clock_);
  }
}

uint32_t RunningText::wanted_draft(uint32_t n_ctx) const {
  if (!drafting_ || !is_written() || tokens_.size() >= n_ctx) return 0;
  uint64_t room = n_ctx - tokens_.size();
  const int64_t most = job_->options().generate.max_tokens;
  // The step gives one token more than the draft has.
  if (most >= 0) room = std::min(room, static_cast<uint64_t>(most) - generated() - 1);
  return static_cast<uint32_t>(std::min<uint64_t>(room, drafting_->drafts.wanted()));
}

Status RunningText::Draft(uint32_t most) {
  drafting_->first = sequence_.position();
  drafting_->taken = 0;
  Status drafted = drafting_->drafts.Propose(tokens_, most);
  if (!drafted && drafted.error().code != Errc::kInterrupted) {
    LogWarning("a text goes on without drafts: {}", drafted.error().message);
    drafting_.reset();
  }
  return drafted;
}

void RunningText::EndDraft(double seconds, uint32_t n_texts) {
  drafting_->drafts.Round(seconds, drafting_->taken - 1, n_texts);
  // After an error of the engine the next step computes what the sequence lacks.
  [[maybe_unused]] const Status back =
      CutBackTo(drafting_->engine, sequence_, drafting_->first + drafting_->taken);
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
  for (const Token token : Likeliest(logits, top)) all.top.push_back(candidate(token));
  return all;
}

}  // namespace moestro
