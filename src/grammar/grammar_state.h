// SPDX-License-Identifier: MIT
// libllama's grammar sampler with a late start. llama.h stays in grammar_state.cc.
//
// Thread rule: one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "model/vocab.h"
#include "sandbox/trial.h"

namespace moestro {

// The set of tokens with which a text may go on. grammar_state.h implements it in this process,
// grammar_process.h by a process of its own.
//
// Thread rule: one thread.

class TokenFilter {
 public:
  TokenFilter() = default;
  TokenFilter(const TokenFilter&) = delete;
  TokenFilter& operator=(const TokenFilter&) = delete;
  virtual ~TokenFilter() = default;

  // Appends the token to the text if the grammar allows it; false if not. An error of any method
  // ends the text. kInvalidRequest with the reason.
  virtual Result<bool> Take(Token token) = 0;
  // Whether each of the first n_tokens tokens is allowed.
  virtual Result<std::vector<bool>> Allowed(uint32_t n_tokens) = 0;
  // The next token is the first of a new text.
  virtual void Restart() = 0;
};

}  // namespace moestro

struct llama_sampler;  // NOLINT(readability-identifier-naming)

namespace moestro {

// GBNF text with the start symbol "root". The grammar takes effect at the first trigger in the
// text, which belongs to the grammar's text; without triggers, at once.
struct Grammar {
  std::string text;
  std::vector<std::string> triggers;
};

// Processor time for grammars of clients that are not trusted, in a process of their own.
struct GrammarLimits {
  std::chrono::milliseconds opening{2'000};
  std::chrono::milliseconds token{200};

  // A vocabulary of 100,000 tokens takes 50 ms on a quick processor; a slow one gets ten times
  // that.
  static GrammarLimits For(uint32_t n_tokens) {
    GrammarLimits limits;
    limits.token += std::chrono::milliseconds(n_tokens / 200);
    return limits;
  }
};

// A call may take any time and memory (grammar_process.h bounds both). A negated class may let
// through characters that are spelled in too many bytes, where the vocabulary has tokens of single
// bytes; the text shows such characters as U+FFFD.
class GrammarState final : public TokenFilter {
 public:
  // `vocab` must outlive the result. Null: the text is no grammar. libllama may abort on the
  // grammar, or throw std::exception: try the grammar first.
  static std::unique_ptr<GrammarState> Make(const Grammar& grammar, const Vocab& vocab);

  Result<bool> Take(Token token) override;
  Result<std::vector<bool>> Allowed(uint32_t n_tokens) override;
  void Restart() override;

 private:
  struct Free {
    void operator()(llama_sampler* sampler) const;
  };
  using SamplerPtr = std::unique_ptr<llama_sampler, Free>;
  struct Piece {
    Token token;
    std::string text;
  };

  GrammarState(SamplerPtr sampler, const Grammar& grammar, const Vocab& vocab);
  // The methods below may throw std::exception, as libllama does.
  bool Allows(Token token) const;
  std::vector<bool> AllowedOf(uint32_t n_tokens) const;
  void Accept(Token token);  // REQUIRES: the token is allowed
  std::string TextOf(Token token) const;
  bool EndsTrigger(std::string_view text) const;
  // The sampler after the trigger that `last` completes; null if the grammar forbids that
  // beginning.
  SamplerPtr Begun(Token last) const;

  SamplerPtr sampler_;
  const Vocab* vocab_;
  std::vector<std::string> triggers_;
  size_t longest_trigger_ = 0;
  bool is_waiting_ = false;
  SamplerPtr fresh_;        // waits for a trigger; null without triggers
  std::deque<Piece> tail_;  // the last tokens, in which a trigger may have begun
  std::string tail_text_;
};

// Checks a grammar without libllama: kInvalidRequest for a grammar or trigger that is too long or
// not UTF-8, and for a model without a tokenizer.
Status CheckGrammarText(const Grammar& grammar, const Vocab& vocab);
// To be run in a child process: true if the grammar can be parsed and allows one of the first
// n_tokens tokens at its start, within the limits. Otherwise prints the reason on stderr.
bool TryGrammar(const Grammar& grammar, const Vocab& vocab, uint32_t n_tokens,
                std::optional<GrammarLimits> limits = std::nullopt);
// The outcome of such a trial as a Status.
Status GrammarVerdict(const Trial& trial);

}  // namespace moestro
