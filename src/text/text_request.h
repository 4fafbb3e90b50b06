// SPDX-License-Identifier: MIT
// A requested text as values: how it shall be written, where it stops, and the events by which its
// reader gets it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "core/ids.h"

namespace moestro {

// Finds stop strings in text that arrives in parts. Holds back text that may be the start of a stop
// string. Takes time in proportion to the length of the text and the number of stop strings.

class StopMatcher {
 public:
  // Empty strings among `stops` are ignored.
  explicit StopMatcher(std::vector<std::string> stops);

  // Adds text and returns what is certain to lie before any stop string. After a stop string is
  // found, all text from its first byte on is dropped.
  std::string Push(std::string_view text);
  bool found() const { return found_; }
  // the stop string that was found; empty: none
  const std::string& which() const { return which_; }
  // The text that is still held back, at the end of the input.
  std::string Flush();
  // Characters that have been compared.
  uint64_t steps() const { return steps_; }

 private:
  struct Search {
    explicit Search(std::string text);
    std::string stop;
    // [n]: the length of the longest string that both begins and ends the first n characters
    std::vector<size_t> fallback;
    size_t matched = 0;  // characters of the stop string that the end of the text matches
  };
  // The place in `text` where the stop string ends.
  std::optional<size_t> EndIn(std::string_view text, Search& search);

  std::vector<Search> searches_;
  std::string held_;
  uint64_t steps_ = 0;
  std::string which_;
  bool found_ = false;
};

struct GenerateOptions {
  int64_t max_tokens = -1;              // new tokens; negative: no limit
  std::vector<std::string> stops = {};  // the text ends before the first stop string
};

struct TextOptions {
  std::vector<Token> prompt;
  GenerateOptions generate = {};
  bool spells_control = false;  // control tokens are text, for a reader of marks in the answer
  bool wants_logprobs = false;
  uint32_t top_logprobs = 0;
  // Numbers of the prompt's tokens after which later prompts may part from this one, rising: a
  // state that cannot be cut back is kept there.
  std::vector<uint32_t> checkpoints = {};
  std::vector<Token> end_tokens = {};  // end the text as the model's own do
  uint32_t min_tokens = 0;  // before so many tokens no end token and no stop string ends the text
  std::vector<Token> early_ends = {};  // tokens that are not picked before min_tokens
  // The first token of the prompt that gets log-probabilities; nullopt: the answer's tokens do.
  std::optional<uint32_t> scored_from = {};
  bool wants_progress = false;   // progress of the prompt
  double writing_seconds = 0.0;  // most, from the first token to a line's end; 0: no limit

  bool scores_prompt() const { return scored_from.has_value(); }
};

enum class StopReason {
  kEndToken,
  kLimit,
  kStopString,
  kContextFull,
  kTimeLimit,
  kInterrupted,
  kOutputClosed
};
std::string_view ToString(StopReason reason);  // "end", "limit", ... for reports

// A text that was written.
struct Generated {
  std::string text;  // as emitted
  // As picked, without the end token. The last token may not be part of the sequence.
  std::vector<Token> tokens;
  StopReason reason = StopReason::kEndToken;
};

struct TokenLogprob {
  struct Candidate {
    Token token = 0;
    std::string bytes;     // may be part of a character
    float logprob = 0.0F;  // NaN: not known, as for an echoed prompt's first token
  };
  Candidate chosen;
  std::vector<Candidate> top;  // likeliest first
};

struct TextUsage {
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;  // of the prompt, not computed again
  // of the prompt, computed again: a kept text has the tokens, and no state at their end
  uint32_t recomputed_tokens = 0;
  uint32_t completion_tokens = 0;
  uint32_t reasoning_tokens = 0;  // of the completion; counted by readers that parse thoughts
  uint32_t drafted_tokens = 0;    // --draft: tokens that were guessed
  uint32_t accepted_drafts = 0;   // of these, tokens that the completion took
  double prompt_seconds = 0.0;
  double completion_seconds = 0.0;
};

// The computed part of a prompt.
struct PromptProgress {
  uint32_t total = 0;      // tokens
  uint32_t cached = 0;     // of `total`, not computed again
  uint32_t processed = 0;  // computed or cached
  double seconds = 0.0;    // since the prompt's first step
};

// The log-probabilities of a scored prompt, once, before any text.
struct PromptScores {
  std::vector<TokenLogprob> logprobs;
};

// Text that has become certain, in whole characters; may be empty while tokens are held back.
struct TextPiece {
  std::string text;
  std::vector<TokenLogprob> logprobs;
  uint32_t tokens = 0;  // picked since the last TextPiece
};

struct TextEnd {
  StopReason reason = StopReason::kEndToken;
  std::string stop;  // the stop string that ended the text; empty: no stop string did
  TextUsage usage;
};

using TextEvent = std::variant<TextPiece, PromptScores, PromptProgress, TextEnd, Error>;

// Gets a text. Implementations: a server's job, a session, the ones of an evaluation and of a
// benchmark.
//
// Thread rule: all calls come from the engine thread.
class TextReader {
 public:
  virtual ~TextReader() = default;
  // The next event; a TextEnd or an Error is the last one. False: the reader takes no more text,
  // which ends with kOutputClosed.
  virtual bool Tell(TextEvent event) = 0;
  // Called for each token, before the event that has its text.
  virtual void CountToken() {}
  // The text has no use any more: a step of its prompt is given up.
  virtual bool is_cancelled() const { return false; }
  // The time, by SteadySeconds(), at which a text with at least one token ends.
  virtual double deadline() const { return std::numeric_limits<double>::infinity(); }
};

}  // namespace moestro
