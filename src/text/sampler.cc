// SPDX-License-Identifier: MIT
#include "text/sampler.h"

#include <llama.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <string_view>
#include <utility>

#include "grammar/grammar_state.h"
#include "sandbox/trial.h"

namespace moestro {
namespace {

struct SamplerFree {
  void operator()(llama_sampler* sampler) const { llama_sampler_free(sampler); }
};
using SamplerPtr = std::unique_ptr<llama_sampler, SamplerFree>;

constexpr float kNever = -std::numeric_limits<float>::infinity();

Status CheckOptions(const SamplingOptions& o, uint32_t n_vocab) {
  if (!(o.repeat_penalty > 0.0F)) {
    return Fail(Errc::kInvalidRequest, "--repeat-penalty {} must be above 0", o.repeat_penalty);
  }
  if (o.mirostat < 0 || o.mirostat > 2) {
    return Fail(Errc::kInvalidRequest, "--mirostat {} must be 0, 1 or 2", o.mirostat);
  }
  if (o.ignore_eos && !o.grammar.empty()) {
    return Fail(Errc::kInvalidRequest,
                "--ignore-eos and a grammar exclude each other: a finished grammar must be able to "
                "end the text");
  }
  for (const auto& [token, bias] : o.logit_bias) {
    if (token >= 0 && static_cast<uint32_t>(token) < n_vocab) continue;
    return Fail(Errc::kInvalidRequest, "--logit-bias: token {} is outside the vocabulary (0 to {})",
                token, n_vocab - 1);
  }
  return {};
}

// The biases, one for each token, in increasing order. libllama's own sampler searches all
// candidates for each bias once a grammar has taken some out: the product of both, for each token
// of a text.
std::vector<std::pair<Token, float>> Biases(const SamplingOptions& o, const llama_vocab* vocab) {
  std::vector<std::pair<Token, float>> biases = o.logit_bias;
  if (o.ignore_eos) {
    for (Token token = 0; token < llama_vocab_n_tokens(vocab); ++token) {
      if (llama_vocab_is_eog(vocab, token)) biases.emplace_back(token, kNever);
    }
  }
  std::ranges::stable_sort(biases, {}, &std::pair<Token, float>::first);
  size_t kept = 0;
  for (const auto& bias : biases) {
    if (kept > 0 && biases[kept - 1].first == bias.first)
      biases[kept - 1].second += bias.second;
    else
      biases[kept++] = bias;
  }
  biases.resize(kept);
  biases.shrink_to_fit();
  return biases;
}

// No text has more tokens than the context.
int32_t LookBack(int32_t last_n, int32_t n_ctx) {
  return last_n < 0 ? n_ctx : std::min(last_n, n_ctx);
}

// The samplers that look at earlier tokens.
void AddPenalties(llama_sampler* chain, const SamplingOptions& o, const llama_vocab* vocab,
                  int32_t n_vocab, int32_t n_ctx) {
  const int32_t last_n = LookBack(o.repeat_last_n, n_ctx);
  const bool penalises =
      o.repeat_penalty != 1.0F || o.frequency_penalty != 0.0F || o.presence_penalty != 0.0F;
  if (penalises && last_n > 0) {
    llama_sampler_chain_add(
        chain, llama_sampler_init_penalties(n_vocab, last_n, o.repeat_penalty, o.frequency_penalty,
                                            o.presence_penalty));
  }
  const int32_t dry_last_n = LookBack(o.dry_penalty_last_n, n_ctx);
  if (o.dry_multiplier == 0.0F || dry_last_n == 0) return;
  std::vector<const char*> breakers;
  for (const std::string& breaker : o.dry_sequence_breakers) breakers.push_back(breaker.c_str());
  llama_sampler_chain_add(
      chain, llama_sampler_init_dry(vocab, o.dry_multiplier, o.dry_base, o.dry_allowed_length,
                                    dry_last_n, breakers.data(), breakers.size()));
}

SamplerPtr MakeChain(const SamplingOptions& o, const llama_vocab* vocab, int32_t n_vocab,
                     int32_t n_ctx) {
  SamplerPtr chain(llama_sampler_chain_init(llama_sampler_chain_default_params()));
  const auto add = [&](llama_sampler* sampler) { llama_sampler_chain_add(chain.get(), sampler); };
  if (o.mirostat != 0) {
    add(llama_sampler_init_temp(o.temp));
    constexpr int32_t kTokensForEstimate = 100;  // as in the paper
    if (o.mirostat == 1) {
      add(llama_sampler_init_mirostat(n_vocab, o.seed, o.mirostat_ent, o.mirostat_lr,
                                      kTokensForEstimate));
    } else {
      add(llama_sampler_init_mirostat_v2(o.seed, o.mirostat_ent, o.mirostat_lr));
    }
    return chain;
  }
  AddPenalties(chain.get(), o, vocab, n_vocab, n_ctx);
  constexpr size_t kMinKeep = 0;
  if (o.top_n_sigma > 0.0F) add(llama_sampler_init_top_n_sigma(o.top_n_sigma));
  add(llama_sampler_init_top_k(o.top_k));
  add(llama_sampler_init_typical(o.typical, kMinKeep));
  add(llama_sampler_init_top_p(o.top_p, kMinKeep));
  add(llama_sampler_init_min_p(o.min_p, kMinKeep));
  add(llama_sampler_init_xtc(o.xtc_probability, o.xtc_threshold, kMinKeep, o.seed));
  add(llama_sampler_init_temp_ext(o.temp, o.dynatemp_range, o.dynatemp_exp));
  add(llama_sampler_init_dist(o.seed));
  return chain;
}

Result<std::unique_ptr<TokenFilter>> TryAndMake(const Grammar& grammar, const Vocab& vocab,
                                                uint32_t n_tokens) {
  TRY_STATUS(CheckGrammarText(grammar, vocab));
  TRY_STATUS(GrammarVerdict(TryInChild([&] { return TryGrammar(grammar, vocab, n_tokens); }, {})));
  std::unique_ptr<TokenFilter> made;
  try {
    made = GrammarState::Make(grammar, vocab);
  } catch (const std::exception& error) {
    return Fail(Errc::kInvalidRequest, "the grammar cannot be used: {}", error.what());
  }
  if (!made) return Fail(Errc::kInvalidRequest, "the grammar cannot be used");
  return made;
}

}  // namespace

struct Sampler::Impl {
  SamplerPtr chain;
  std::unique_ptr<TokenFilter> grammar;
  uint32_t n_named = 0;  // tokens of the vocabulary; a model may pad its output beyond
  std::vector<std::pair<Token, float>> biases;
  std::vector<llama_token_data> candidates;

  Status Fill(std::span<const float> logits);
  void Remove(std::span<const Token> tokens);
  Token RunChain();
  Result<Token> PickAllowed(std::span<const float> logits, std::span<const Token> not_yet);
};

Sampler::Sampler(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Sampler::Sampler(Sampler&&) noexcept = default;
Sampler& Sampler::operator=(Sampler&&) noexcept = default;
Sampler::~Sampler() = default;

Result<Sampler> Sampler::Create(const SamplingOptions& options, const Vocab& vocab,
                                uint32_t n_vocab, uint32_t n_ctx) {
  std::unique_ptr<TokenFilter> grammar;
  if (!options.grammar.empty()) {
    TRY_STATUS(CheckOptions(options, n_vocab));
    TRY(grammar, TryAndMake({options.grammar, options.grammar_triggers}, vocab,
                            std::min(vocab.size(), n_vocab)));
  }
  return CreateWith(std::move(grammar), options, vocab, n_vocab, n_ctx);
}

Result<Sampler> Sampler::CreateWith(std::unique_ptr<TokenFilter> grammar,
                                    const SamplingOptions& options, const Vocab& vocab,
                                    uint32_t n_vocab, uint32_t n_ctx) {
  TRY_STATUS(CheckOptions(options, n_vocab));
  auto impl = std::make_unique<Impl>();
  impl->n_named = vocab.has_text() ? std::min(vocab.size(), n_vocab) : n_vocab;
  impl->grammar = std::move(grammar);
  impl->biases = Biases(options, vocab.raw());
  impl->chain =
      MakeChain(options, vocab.raw(), static_cast<int32_t>(n_vocab), static_cast<int32_t>(n_ctx));
  return Sampler(std::move(impl));
}

Status Sampler::Impl::Fill(std::span<const float> logits) {
  candidates.clear();
  candidates.reserve(logits.size());
  for (size_t i = 0; i < std::min<size_t>(logits.size(), n_named); ++i) {
    if (std::isnan(logits[i]) || logits[i] == -kNever) {
      return Fail(Errc::kInvalidFile,
                  "the model's output for token {} is not a number; its file may be damaged", i);
    }
    candidates.push_back({static_cast<Token>(i), logits[i], 0.0F});
  }
  for (const auto& [token, bias] : biases) {
    if (static_cast<size_t>(token) < candidates.size())
      candidates[static_cast<size_t>(token)].logit += bias;
  }
  return {};
}

// `candidates` is in the order of ids.
void Sampler::Impl::Remove(std::span<const Token> tokens) {
  for (const Token token : tokens) {
    const auto [begin, end] =
        std::ranges::equal_range(candidates, token, {}, &llama_token_data::id);
    candidates.erase(begin, end);
  }
}

Token Sampler::Impl::RunChain() {
  llama_token_data_array array{candidates.data(), candidates.size(), -1, false};
  llama_sampler_apply(chain.get(), &array);
  return array.data[array.selected].id;
}

Result<Token> Sampler::Impl::PickAllowed(std::span<const float> logits,
                                         std::span<const Token> not_yet) {
  TRY(const std::vector<bool> allowed, grammar->Allowed(n_named));
  TRY_STATUS(Fill(logits));
  std::erase_if(candidates, [&](const llama_token_data& candidate) {
    return !allowed[static_cast<size_t>(candidate.id)];
  });
  if (candidates.empty()) {
    return Fail(Errc::kInvalidRequest, "the grammar allows no further token");
  }
  // A complete grammar ends the text.
  if (!not_yet.empty()) {
    const std::vector<llama_token_data> all = candidates;
    Remove(not_yet);
    if (candidates.empty()) candidates = all;
  }
  const Token token = RunChain();
  TRY(const bool is_taken, grammar->Take(token));
  if (!is_taken) return Fail(Errc::kInvalidRequest, "the grammar allows no further token");
  return token;
}

void Sampler::SetGrammar(std::unique_ptr<TokenFilter> grammar) {
  impl_->grammar = std::move(grammar);
}

void Sampler::Observe(std::span<const Token> prompt) {
  for (const Token token : prompt) llama_sampler_accept(impl_->chain.get(), token);
}

// Picks first, and checks the whole vocabulary only if the grammar forbids the pick: a check of all
// tokens costs much more than one of a single token, and the likeliest token mostly fits.
Result<Token> Sampler::Pick(std::span<const float> logits, std::span<const Token> not_yet) {
  Impl& m = *impl_;
  TRY_STATUS(m.Fill(logits));
  m.Remove(not_yet);
  if (m.candidates.empty()) return Fail(Errc::kInvalidRequest, "no token may be picked");
  Token token = m.RunChain();
  if (m.grammar) {
    TRY(const bool is_taken, m.grammar->Take(token));
    if (!is_taken) {
      TRY(token, m.PickAllowed(logits, not_yet));
    }
  }
  llama_sampler_accept(m.chain.get(), token);
  return token;
}

void Sampler::RestartGrammar() {
  if (impl_->grammar) impl_->grammar->Restart();
}

namespace {

constexpr std::string_view kBlankCharacters = " \t\r\n";

// Keeps the end of the text that may be the beginning of `mark`.
void KeepTail(std::string& text, std::string_view mark) {
  if (text.size() >= mark.size()) text.erase(0, text.size() - mark.size() + 1);
}

}  // namespace

QuietWatch::QuietWatch(QuietText marks) : marks_(std::move(marks)) { Restart(); }

void QuietWatch::Restart() {
  tail_.clear();
  place_ = marks_.is_open ? Loudness::kQuiet : Loudness::kStart;
  if (marks_.end.empty()) place_ = Loudness::kLoud;
}

bool QuietWatch::Push(std::string_view text) {
  bool is_loud = place_ != Loudness::kQuiet;
  if (place_ == Loudness::kLoud) return true;
  tail_ += text;
  if (place_ == Loudness::kStart) FindBegin();
  while (place_ == Loudness::kQuiet && FindEnd()) {
    is_loud = true;
    if (place_ == Loudness::kStart) FindBegin();
  }
  return is_loud;
}

// True: the quiet part has ended.
bool QuietWatch::FindEnd() {
  const size_t found = tail_.find(marks_.end);
  if (found == std::string::npos) {
    KeepTail(tail_, marks_.end);
    return false;
  }
  tail_.erase(0, found + marks_.end.size());
  place_ = marks_.is_anywhere ? Loudness::kStart : Loudness::kLoud;
  return true;
}

void QuietWatch::FindBegin() {
  size_t at = tail_.find(marks_.begin);
  if (!marks_.is_anywhere) {
    tail_.erase(0, std::min(tail_.find_first_not_of(kBlankCharacters), tail_.size()));
    if (!tail_.starts_with(marks_.begin)) {
      if (!std::string_view(marks_.begin).starts_with(tail_)) place_ = Loudness::kLoud;
      return;
    }
    at = 0;
  }
  if (at == std::string::npos) return KeepTail(tail_, marks_.begin);
  tail_.erase(0, at + marks_.begin.size());
  place_ = Loudness::kQuiet;
}

QuietFilter::QuietFilter(std::unique_ptr<TokenFilter> filter, QuietText marks, const Vocab& vocab)
    : filter_(std::move(filter)), watch_(std::move(marks)), vocab_(vocab) {}

Result<bool> QuietFilter::Take(Token token) {
  QuietWatch next = watch_;
  // The filter also gets the token that ends a quiet part: a text that starts the grammar may begin
  // in that token.
  if (next.Push(vocab_.Spelling(token))) {
    TRY(const bool is_taken, filter_->Take(token));
    if (!is_taken) return false;
  }
  watch_ = std::move(next);
  return true;
}

// Called only after the filter has refused a token, which cannot happen in a quiet part.
Result<std::vector<bool>> QuietFilter::Allowed(uint32_t n_tokens) {
  return filter_->Allowed(n_tokens);
}

void QuietFilter::Restart() {
  watch_.Restart();
  filter_->Restart();
}

}  // namespace moestro
