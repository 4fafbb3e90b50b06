// SPDX-License-Identifier: MIT
// Picks the next token from logits with libllama's samplers, in libllama's default order. Fields,
// defaults and meanings are those of the llama.cpp options of the same name. The same options, seed
// and logits give the same tokens. llama.h stays in sampler.cc
// and grammar_state.cc.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "grammar/grammar_state.h"
#include "model/vocab.h"

namespace moestro {

struct SamplingOptions {
  float temp = 0.80F;             // <= 0: the likeliest token
  int32_t top_k = 40;             // <= 0: off
  float top_p = 0.95F;            // 1: off
  float min_p = 0.05F;            // 0: off
  float typical = 1.00F;          // 1: off
  float top_n_sigma = -1.00F;     // <= 0: off
  float xtc_probability = 0.00F;  // 0: off
  float xtc_threshold = 0.10F;
  float dynatemp_range = 0.00F;  // 0: off
  float dynatemp_exp = 1.00F;

  int32_t repeat_last_n = 64;       // 0: off, -1: the whole context
  float repeat_penalty = 1.00F;     // 1: off
  float presence_penalty = 0.00F;   // 0: off
  float frequency_penalty = 0.00F;  // 0: off
  float dry_multiplier = 0.00F;     // 0: off
  float dry_base = 1.75F;
  int32_t dry_allowed_length = 2;
  int32_t dry_penalty_last_n = -1;  // 0: off, -1: the whole context
  std::vector<std::string> dry_sequence_breakers = {"\n", ":", "\"", "*"};

  int32_t mirostat = 0;  // 0: off, 1, 2; replaces the filters above
  float mirostat_ent = 5.00F;
  float mirostat_lr = 0.10F;

  uint32_t seed = 0;
  bool ignore_eos = false;
  std::vector<std::pair<Token, float>> logit_bias = {};
  std::string grammar = {};  // GBNF text, start symbol "root"; empty: none
  // Texts that start the grammar: it takes effect at the first of them in the answer, which belongs
  // to the grammar's text; none: at once.
  std::vector<std::string> grammar_triggers = {};
};

class Sampler {
 public:
  // `vocab` must outlive this; n_vocab: logits per call; n_ctx: the length of "the whole context".
  // kInvalidRequest for values that cannot work and for a grammar that is malformed, too deep or
  // allows no token. A child process tests the grammar, because libllama may abort on it. Call
  // before the engine starts its threads.
  static Result<Sampler> Create(const SamplingOptions& options, const Vocab& vocab,
                                uint32_t n_vocab, uint32_t n_ctx);
  // Like Create() at any time, with a grammar that is ready; null: no grammar. The grammar of the
  // options is not used.
  static Result<Sampler> CreateWith(std::unique_ptr<TokenFilter> grammar,
                                    const SamplingOptions& options, const Vocab& vocab,
                                    uint32_t n_vocab, uint32_t n_ctx);
  Sampler(Sampler&&) noexcept;
  Sampler& operator=(Sampler&&) noexcept;
  ~Sampler();

  // Replaces the grammar before a text begins; null: no grammar.
  void SetGrammar(std::unique_ptr<TokenFilter> grammar);
  // Adds tokens for repetition penalties. The grammar does not get them.
  void Observe(std::span<const Token> prompt);
  // REQUIRES: logits.size() == n_vocab. kInvalidFile if a logit is not a number (a damaged model),
  // kInvalidRequest if the grammar allows no token or cannot go on. `not_yet`: tokens that are
  // picked only if a grammar allows no other.
  Result<Token> Pick(std::span<const float> logits, std::span<const Token> not_yet = {});
  // Restarts the grammar: the next token is the first of a new text.
  void RestartGrammar();

 private:
  struct Impl;
  explicit Sampler(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// A filter that pauses while a model thinks, because thoughts may contain the texts that start a
// grammar.
//
// Thread rule: one thread.

// The marks in the text between which a filter sleeps. Control tokens are written as text.
struct QuietText {
  std::string begin;
  std::string end;       // empty: the filter never sleeps
  bool is_open = false;  // the text begins within
  // `begin` counts everywhere; else only at the start of the text, after blanks.
  bool is_anywhere = false;
};

// Follows a text and reports whether the text is within a quiet part.
class QuietWatch {
 public:
  explicit QuietWatch(QuietText marks);
  // Adds text. True: a part of `text`, at least its end, is not quiet.
  bool Push(std::string_view text);
  void Restart();

 private:
  enum class Loudness : uint8_t { kStart, kLoud, kQuiet };
  bool FindEnd();
  void FindBegin();

  QuietText marks_;
  Loudness place_ = Loudness::kStart;
  std::string tail_;  // the last bytes, in which a mark may have begun
};

class QuietFilter final : public TokenFilter {
 public:
  // `vocab` must outlive this. REQUIRES: `filter` allows every token until it gets a text that
  // occurs only in a loud part.
  QuietFilter(std::unique_ptr<TokenFilter> filter, QuietText marks, const Vocab& vocab);

  Result<bool> Take(Token token) override;
  Result<std::vector<bool>> Allowed(uint32_t n_tokens) override;
  void Restart() override;

 private:
  std::unique_ptr<TokenFilter> filter_;
  QuietWatch watch_;
  const Vocab& vocab_;
};

}  // namespace moestro
