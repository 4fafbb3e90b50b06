// SPDX-License-Identifier: MIT
#include "text/running_text.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <utility>

#include "base/result.h"
#include "base/terminal.h"
#include "base/text.h"
#include "engine/append.h"

namespace moestro {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

}  // namespace

std::string Utf8Stream::Push(std::string_view bytes) {
  pending_ += bytes;
  std::string whole;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const Utf8Sequence sequence = ReadUtf8(rest);
    if (sequence.is_open) break;
    whole += sequence.is_valid ? rest.substr(0, sequence.length) : kReplacement;
    rest.remove_prefix(sequence.length);
  }
  pending_ = std::string(rest);
  return whole;
}

std::string Utf8Stream::Flush() {
  if (pending_.empty()) return {};
  pending_.clear();
  return std::string(kReplacement);
}

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

RunningText::RunningText(TextReader& reader, const TextOptions& options, Sequence sequence,
                         PickToken pick, const Vocab* vocab, const Clock& clock)
    : reader_(reader),
      options_(options),
      sequence_(std::move(sequence)),
      pick_(std::move(pick)),
      vocab_(vocab),
      clock_(clock),
      tokens_(options.prompt),
      n_prompt_(tokens_.size()),
      cached_(sequence_.position()),
      stop_(options.generate.stops),
      began_(clock()) {
  CHECK(cached_ < n_prompt_);
  CHECK(vocab_ != nullptr || !(options.wants_logprobs || options.scores_prompt()));
  if (options.scored_from == 0) {
    // A text's very first token follows nothing.
    constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();
    const Token first = options.prompt.front();
    scores_.push_back(
        {.chosen = {.token = first, .bytes = vocab_->Spelling(first), .logprob = kUnknown},
         .top = {}});
  }
}

bool RunningText::IsKeptAfter(uint32_t n, uint32_t every) const {
  if (every > 0 && n % every == 0) return true;
  return std::ranges::binary_search(options_.checkpoints, n);
}

void RunningText::Score(uint32_t position, std::span<const float> logits) {
  // The scores of a prompt that is computed again are complete up to some position.
  const bool is_next = position + 1 == *options_.scored_from + scores_.size();
  if (has_said_prompt_ || !is_next) return;
  scores_.push_back(LogprobsOf(logits, tokens_[position + 1], options_.top_logprobs, *vocab_));
}

void RunningText::SayPrompt() {
  if (std::exchange(has_said_prompt_, true) || !options_.scores_prompt()) return;
  reader_.Tell(PromptScores{.logprobs = std::exchange(scores_, {})});
}

void RunningText::SayProgress(uint32_t processed) {
  if (!options_.wants_progress || has_said_prompt_) return;
  reader_.Tell(PromptProgress{.total = n_prompt(),
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
  const bool may_end = generated() >= options_.min_tokens;
  const Result<Token> token =
      pick_(logits, may_end ? std::span<const Token>() : options_.early_ends);
  if (!token) {
    Fail(token.error());
    return true;
  }
  const bool is_end = (vocab_ != nullptr && vocab_->is_end(*token)) ||
                      std::ranges::contains(options_.end_tokens, *token);
  const std::optional<StopReason> end = is_end ? StopReason::kEndToken : Add(*token, logits, n_ctx);
  if (end) End(*end);
  return end.has_value();
}

// The reason why no further token fits; none: one fits.
std::optional<StopReason> RunningText::EndAfter(uint32_t n_ctx) const {
  const int64_t most = options_.generate.max_tokens;
  if (most >= 0 && std::cmp_greater_equal(generated(), most)) return StopReason::kLimit;
  if (tokens_.size() >= n_ctx) return StopReason::kContextFull;
  if (generated() > 0 && is_out_of_time()) return StopReason::kTimeLimit;
  return std::nullopt;
}

bool RunningText::is_out_of_time() const {
  const double most_writing = options_.writing_seconds;
  const bool has_written = most_writing > 0.0 && has_line_ && told_ - first_token_ > most_writing;
  return has_written || SteadySeconds() > reader_.deadline();
}

std::optional<StopReason> RunningText::Add(Token token, std::span<const float> logits,
                                           uint32_t n_ctx) {
  tokens_.push_back(token);
  ++unsaid_tokens_;
  reader_.CountToken();
  std::vector<TokenLogprob> logprobs;
  if (options_.wants_logprobs) {
    logprobs.push_back(LogprobsOf(logits, token, options_.top_logprobs, *vocab_));
  }
  std::string piece;
  if (vocab_ != nullptr) {
    piece = options_.spells_control ? vocab_->Spelling(token) : vocab_->Piece(token);
  }
  has_line_ = has_line_ || piece.contains('\n');
  std::string text = utf8_.Push(piece);
  if (generated() > options_.min_tokens) text = stop_.Push(text);
  Say(std::move(text), std::move(logprobs));
  if (is_closed_) return StopReason::kOutputClosed;
  if (stop_.found()) return StopReason::kStopString;
  return EndAfter(n_ctx);
}

void RunningText::Say(std::string text, std::vector<TokenLogprob> logprobs) {
  if ((text.empty() && logprobs.empty()) || is_closed_) return;
  is_closed_ = !reader_.Tell(TextPiece{.text = std::move(text),
                                       .logprobs = std::move(logprobs),
                                       .tokens = std::exchange(unsaid_tokens_, 0)});
}

// Says what was held back for a whole character or a stop string.
void RunningText::SayRest() {
  std::string rest = stop_.Push(utf8_.Flush());
  if (!stop_.found()) rest += stop_.Flush();
  Say(std::move(rest), {});
}

void RunningText::Fail(const Error& error) {
  ending_ = std::unexpected(error);
  SayRest();
  reader_.Tell(error);
}

void RunningText::End(StopReason reason) {
  ending_ = reason;
  SayRest();
  reader_.Tell(TextEnd{.reason = reason,
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

void RunningText::DraftWith(std::unique_ptr<Drafter> drafter, std::shared_ptr<DraftControl> control,
                            Engine& engine) {
  drafting_ = std::make_unique<Drafting>(std::move(drafter), std::move(control), engine, clock_);
}

void RunningText::Drafting::Price() {
  const PhaseStats& now = engine.stats().decode;
  const PhaseStats before = std::exchange(seen, now);
  const uint64_t bytes = engine.facts().predicting_bytes;
  if (!control->is_priced() || bytes == 0) return;
  // Counters may begin again at any time.
  if (now.seconds < before.seconds || now.touched_bytes < before.touched_bytes) return;
  costs.Add({.seconds = now.seconds - before.seconds,
             .wait_seconds = now.wait_seconds - before.wait_seconds,
             .touched_bytes = static_cast<double>(now.touched_bytes - before.touched_bytes),
             .expert_bytes = static_cast<double>(now.asked_bytes - before.asked_bytes)});
  control->Expect(PriceDrafts(costs.mean(), static_cast<double>(bytes), engine.id().shape.n_layer));
}

uint32_t RunningText::wanted_draft(uint32_t n_ctx) const {
  if (!drafting_ || !is_written() || tokens_.size() >= n_ctx) return 0;
  uint64_t room = n_ctx - tokens_.size();
  const int64_t most = options_.generate.max_tokens;
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

Status RunningText::EndDraft(double seconds, uint32_t n_texts) {
  drafting_->drafts.Round(seconds, drafting_->taken - 1, n_texts);
  drafting_->PassOver();
  return CutBackTo(drafting_->engine, sequence_, drafting_->first + drafting_->taken);
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
