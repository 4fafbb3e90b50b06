// SPDX-License-Identifier: MIT
// A text under way: its sequence and tokens, and the way from logits to whole characters for its
// reader.
//
// Thread rule: the engine thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/work_limit.h"
#include "engine/engine.h"
#include "engine/run_stats.h"
#include "model/vocab.h"
#include "text/draft_control.h"
#include "text/drafts.h"
#include "text/text_request.h"

namespace moestro {

// Joins token pieces into whole UTF-8 characters: a character may be spread over several tokens,
// and a terminal must never get half of a character.

class Utf8Stream {
 public:
  // The whole characters that `bytes` completes. Bytes that can never become one (stray
  // continuation bytes, overlong forms, surrogates) come out as U+FFFD.
  std::string Push(std::string_view bytes);
  // U+FFFD for an incomplete character at the end; empty if the last character was complete.
  std::string Flush();

 private:
  std::string pending_;  // the start of one character, at most 3 bytes
};

// Picks the token after a text by logits, [n_vocab]. `not_yet`: tokens that are picked only if no
// other may be. Called once for each token of the text, in order; drafts are not seen.
using PickToken = std::move_only_function<Result<Token>(std::span<const float> logits,
                                                        std::span<const Token> not_yet)>;

class RunningText {
 public:
  // `sequence` has the first tokens of the prompt, at most all but one. `vocab`: null: tokens have
  // no text, and none ends the text. Reader, options, vocabulary and clock must outlive this.
  RunningText(TextReader& reader, const TextOptions& options, Sequence sequence, PickToken pick,
              const Vocab* vocab, const Clock& clock);

  TextReader& reader() const { return reader_; }
  const TextOptions& options() const { return options_; }
  Sequence& sequence() { return sequence_; }
  const Sequence& sequence() const { return sequence_; }
  // The tokens of prompt and answer that the sequence lacks. Never empty before the text's end.
  std::span<const Token> waiting() const {
    return std::span(tokens_).subspan(sequence_.position());
  }
  // The answer has begun, and only the newest token waits.
  bool is_written() const { return tokens_.size() > n_prompt_ && waiting().size() == 1; }
  uint32_t generated() const { return static_cast<uint32_t>(tokens_.size() - n_prompt_); }
  // The tokens of the answer, without the end token.
  std::span<const Token> answer() const { return std::span(tokens_).subspan(n_prompt_); }
  uint32_t n_prompt() const { return static_cast<uint32_t>(n_prompt_); }
  uint32_t cached() const { return cached_; }
  // Tokens of the prompt that are computed again although a kept text has them; for reports.
  void set_recomputed(uint32_t n) { recomputed_ = n; }
  // The place where the text runs, which no other text of its loop has; for reports, for drafts in
  // turn, and for clients that save texts of a place.
  uint32_t place() const { return place_; }
  void set_place(uint32_t place) { place_ = place; }
  double told() const { return told_; }  // time of picking the newest token

  // Whether the reader needs the logits after this token of the prompt for its scores; never those
  // after the prompt's last token.
  bool wants_logits_at(uint32_t position) const {
    return options_.scores_prompt() && position + 1 >= *options_.scored_from &&
           position + 1 < n_prompt_;
  }
  // Whether the state after the first `n` tokens is kept, so that later texts can go on from there.
  // `every`: states after each so many-th token are kept, too; 0: none of these.
  bool IsKeptAfter(uint32_t n, uint32_t every) const;
  // Scores the prompt's next token by the logits at `position`; called in the order of positions.
  void Score(uint32_t position, std::span<const float> logits);
  // Tells the reader the number of the prompt's computed tokens, if wanted.
  void SayProgress(uint32_t processed);
  // Takes the logits after the text's last token, picks the next token and passes it to the reader.
  // True: the text has ended, and the reader has got the last event. `n_ctx`: the most tokens of a
  // text.
  bool Take(std::span<const float> logits, uint32_t n_ctx);
  // Whether the text goes on from `token` at `position`, so that Take() may have the logits after
  // it. False behind a draft's first wrong token and behind the text's end.
  bool GoesOnFrom(uint32_t position, Token token) const {
    return !ending_ && tokens_.size() == size_t{position} + 1 && tokens_.back() == token;
  }

  // Drafts from now on. `drafter` drafts for sequence(); texts that follow each other may share a
  // control. `engine`, whose statistics count drafts, must outlive this.
  void DraftWith(std::unique_ptr<Drafter> drafter, std::shared_ptr<DraftControl> control,
                 Engine& engine);
  // Tokens that a draft should have now; 0: none. `n_ctx`: as for Take().
  uint32_t wanted_draft(uint32_t n_ctx) const;
  // Drafts at most `most` tokens, which the next step computes behind the newest token.
  // kInterrupted leaves the text as it was; after any other error the text drafts no more, and its
  // sequence may lack tokens.
  Status Draft(uint32_t most);
  std::span<const Token> draft() const { return drafting_ ? drafting_->drafts.tokens() : kNoDraft; }
  std::vector<std::vector<ExpertId>> TakeForeseen() { return drafting_->drafts.TakeForeseen(); }
  // The step with the draft took so many seconds for `n_texts` texts: the sequence goes back to the
  // tokens that were right. Where a state cannot go back they are evaluated again; after an error
  // of this evaluation the next step computes what the sequence lacks.
  Status EndDraft(double seconds, uint32_t n_texts);
  // The step with the draft failed.
  void DiscardDraft() {
    if (drafting_) drafting_->drafts.Discard();
  }
  // A step of `n_texts` texts, none of which had a draft, took so many seconds.
  void NotePlainStep(double seconds, uint32_t n_texts) {
    if (!drafting_) return;
    drafting_->drafts.Plain(seconds, n_texts);
    drafting_->Price();
  }
  // Ends a text that cannot go on: the reader gets the text so far and the error.
  void Fail(const Error& error);
  // Ends a text that somebody has stopped.
  void Interrupt() { End(StopReason::kInterrupted); }
  // The reason or the error that ended the text; nullopt: the text is under way.
  const std::optional<Result<StopReason>>& ending() const { return ending_; }
  // Gives up the sequence for other texts; this text will be computed again in `empty`. Returns the
  // old sequence.
  Sequence GiveUp(Sequence empty);
  // The sequence after the text's end, to be kept as a prefix.
  Sequence TakeSequence() { return std::move(sequence_); }

 private:
  std::optional<StopReason> Add(Token token, std::span<const float> logits, uint32_t n_ctx);
  std::optional<StopReason> EndAfter(uint32_t n_ctx) const;
  bool is_out_of_time() const;
  void SayPrompt();
  void Say(std::string text, std::vector<TokenLogprob> logprobs);
  void SayRest();
  void End(StopReason reason);

  TextReader& reader_;
  const TextOptions& options_;
  Sequence sequence_;
  PickToken pick_;
  const Vocab* vocab_;
  const Clock& clock_;
  std::vector<Token> tokens_;  // prompt and answer
  size_t n_prompt_;
  uint32_t cached_;  // tokens of the prompt that a prefix had
  uint32_t recomputed_ = 0;
  Utf8Stream utf8_;
  StopMatcher stop_;
  double began_;
  double first_token_ = 0.0;  // time when the prompt had been computed
  double told_ = 0.0;
  std::vector<TokenLogprob> scores_;  // of the prompt's tokens, until the reader gets them
  uint32_t unsaid_tokens_ = 0;        // picked since the reader last got text
  bool has_said_prompt_ = false;      // the reader has got the end of the prompt
  bool has_line_ = false;             // a line of the answer has ended
  bool is_closed_ = false;            // the reader takes no more text
  std::optional<Result<StopReason>> ending_;
  uint32_t place_ = 0;

  struct Drafting {
    Drafting(std::unique_ptr<Drafter> by, std::shared_ptr<DraftControl> shared, Engine& of,
             const Clock& clock)
        : engine(of),
          drafter(std::move(by)),
          control(std::move(shared)),
          drafts(*drafter, *control, clock, [this](uint32_t n, uint32_t n_right) {
            engine.stats().NoteDrafts(n, n_right);
            proposed += n;
            accepted += n_right;
          }) {}
    // After a plain step: gives a priced control the prices that drafts would have now.
    void Price();
    // After any other step: its costs are not a plain step's.
    void PassOver() { seen = engine.stats().decode; }

    Engine& engine;
    std::unique_ptr<Drafter> drafter;
    std::shared_ptr<DraftControl> control;
    TextDrafts drafts;
    PhaseStats seen = engine.stats().decode;  // when the last step ended
    StepCostMean costs = {};
    uint32_t first = 0;  // position of the newest token when the draft was made
    uint32_t taken = 0;  // rows of the step that Take() has had
    uint32_t proposed = 0;
    uint32_t accepted = 0;

    // With the draft under way, whose step may be the text's last.
    uint32_t all_proposed() const {
      return proposed + static_cast<uint32_t>(drafts.tokens().size());
    }
    uint32_t all_accepted() const { return accepted + (drafts.tokens().empty() ? 0 : taken - 1); }
  };
  static constexpr std::span<const Token> kNoDraft = {};
  std::unique_ptr<Drafting> drafting_;  // null: no drafts
};

// The chosen token's log-probability and the `top` likeliest, by the softmax of the logits.
TokenLogprob LogprobsOf(std::span<const float> logits, Token chosen, uint32_t top,
                        const Vocab& vocab);

}  // namespace moestro
