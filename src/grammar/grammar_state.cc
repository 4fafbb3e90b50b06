// SPDX-License-Identifier: MIT
#include "grammar/grammar_state.h"

#include <llama.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <limits>
#include <span>

#include "base/text.h"

namespace moestro {
namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();
constexpr size_t kLongestGrammar = size_t{256} << 10;
constexpr size_t kLongestTrigger = 256;
constexpr size_t kMostTriggers = 64;
constexpr const char* kGrammarRoot = "root";
constexpr const char* kAllowsNothing = "it allows no token at the start";

// The reason in libllama's output: the line about the mistake, or the first line.
std::string Reason(std::string_view output) {
  constexpr std::string_view kMark = "error parsing grammar: ";
  if (const size_t at = output.find(kMark); at != std::string_view::npos) {
    output.remove_prefix(at + kMark.size());
  }
  output = output.substr(0, output.find('\n'));
  constexpr size_t kLongestReason = 120;
  return output.empty() ? "no reason given" : std::string(output.substr(0, kLongestReason));
}

// A regular expression whose first group begins at the first trigger.
std::string TriggerPattern(const std::vector<std::string>& triggers) {
  std::string any;
  for (const std::string& trigger : triggers) {
    if (!any.empty()) any += '|';
    for (const char c : trigger) {
      constexpr std::string_view kSpecial = "^$\\.*+?()[]{}|";
      if (kSpecial.contains(c)) any += '\\';
      any += c;
    }
  }
  return "[\\s\\S]*?((?:" + any + ")[\\s\\S]*)";
}

Status CheckBytes(std::string_view text, std::string_view what) {
  const size_t bad = std::min(text.find('\0'), FindInvalidUtf8(text));
  if (bad >= text.size()) return {};
  return Fail(Errc::kInvalidRequest, "the {} is not UTF-8 text: byte {}", what, bad);
}

}  // namespace

void GrammarState::Free::operator()(llama_sampler* sampler) const { llama_sampler_free(sampler); }

GrammarState::GrammarState(SamplerPtr sampler, const Grammar& grammar, const Vocab& vocab)
    : sampler_(std::move(sampler)),
      vocab_(&vocab),
      triggers_(grammar.triggers),
      is_waiting_(!grammar.triggers.empty()) {
  for (const std::string& trigger : triggers_) {
    longest_trigger_ = std::max(longest_trigger_, trigger.size());
  }
  if (is_waiting_) fresh_.reset(llama_sampler_clone(sampler_.get()));
}

std::unique_ptr<GrammarState> GrammarState::Make(const Grammar& grammar, const Vocab& vocab) {
  SamplerPtr sampler;
  if (grammar.triggers.empty()) {
    sampler.reset(llama_sampler_init_grammar(vocab.raw(), grammar.text.c_str(), kGrammarRoot));
  } else {
    const std::string pattern = TriggerPattern(grammar.triggers);
    std::array<const char*, 1> patterns = {pattern.c_str()};
    sampler.reset(llama_sampler_init_grammar_lazy_patterns(vocab.raw(), grammar.text.c_str(),
                                                           kGrammarRoot, patterns.data(),
                                                           patterns.size(), nullptr, 0));
  }
  if (!sampler) return nullptr;
  return std::unique_ptr<GrammarState>(new GrammarState(std::move(sampler), grammar, vocab));
}

// The token's text, with control tokens spelled as in libllama's grammars.
std::string GrammarState::TextOf(Token token) const {
  std::string text(16, '\0');
  while (true) {
    const int32_t n = llama_token_to_piece(vocab_->raw(), token, text.data(),
                                           static_cast<int32_t>(text.size()), 0, true);
    text.resize(static_cast<size_t>(n < 0 ? -n : n));
    if (n >= 0) return text;
  }
}

bool GrammarState::EndsTrigger(std::string_view text) const {
  return std::ranges::any_of(triggers_,
                             [text](const std::string& trigger) { return text.contains(trigger); });
}

// The sampler from the trigger on. libllama searches all accepted tokens for triggers, with a
// regular expression that recurses over them. So the sampler accepts only the tokens in which the
// trigger lies.
GrammarState::SamplerPtr GrammarState::Begun(Token last) const {
  SamplerPtr begun(llama_sampler_clone(fresh_.get()));
  try {
    for (const Piece& piece : tail_) llama_sampler_accept(begun.get(), piece.token);
    llama_sampler_accept(begun.get(), last);
  } catch (const std::exception&) {
    return nullptr;
  }
  return begun;
}

bool GrammarState::Allows(Token token) const {
  if (is_waiting_) return !EndsTrigger(tail_text_ + TextOf(token)) || Begun(token) != nullptr;
  llama_token_data one{token, 0.0F, 0.0F};
  llama_token_data_array array{&one, 1, -1, false};
  llama_sampler_apply(sampler_.get(), &array);
  return one.logit != kForbidden;
}

std::vector<bool> GrammarState::AllowedOf(uint32_t n_tokens) const {
  std::vector<bool> allowed(n_tokens);
  if (is_waiting_) {
    for (uint32_t i = 0; i < n_tokens; ++i) allowed[i] = Allows(static_cast<Token>(i));
    return allowed;
  }
  // libllama spells out all candidates of a call at once, which takes 500 bytes a token.
  constexpr uint32_t kAtOnce = 1024;
  std::vector<llama_token_data> candidates;
  for (uint32_t begin = 0; begin < n_tokens; begin += kAtOnce) {
    candidates.clear();
    for (uint32_t i = begin; i < std::min(n_tokens, begin + kAtOnce); ++i) {
      candidates.push_back({static_cast<Token>(i), 0.0F, 0.0F});
    }
    llama_token_data_array array{candidates.data(), candidates.size(), -1, false};
    llama_sampler_apply(sampler_.get(), &array);
    for (const llama_token_data& candidate : std::span(array.data, array.size)) {
      allowed[static_cast<size_t>(candidate.id)] = candidate.logit != kForbidden;
    }
  }
  return allowed;
}

void GrammarState::Accept(Token token) {
  if (!is_waiting_) {
    llama_sampler_accept(sampler_.get(), token);
    return;
  }
  std::string text = TextOf(token);
  if (EndsTrigger(tail_text_ + text)) {
    if (SamplerPtr begun = Begun(token)) {
      sampler_ = std::move(begun);
      is_waiting_ = false;
      return;
    }
  }
  tail_text_ += text;
  tail_.push_back({token, std::move(text)});
  while (tail_text_.size() - tail_.front().text.size() + 1 >= longest_trigger_) {
    tail_text_.erase(0, tail_.front().text.size());
    tail_.pop_front();
    if (tail_.empty()) break;
  }
}

Result<bool> GrammarState::Take(Token token) {
  try {
    const bool is_allowed = Allows(token);
    if (is_allowed) Accept(token);
    return is_allowed;
  } catch (const std::exception& error) {
    return Fail(Errc::kInvalidRequest, "the grammar cannot go on: {}", error.what());
  }
}

Result<std::vector<bool>> GrammarState::Allowed(uint32_t n_tokens) {
  try {
    return AllowedOf(n_tokens);
  } catch (const std::exception& error) {
    return Fail(Errc::kInvalidRequest, "the grammar cannot go on: {}", error.what());
  }
}

void GrammarState::Restart() {
  tail_.clear();
  tail_text_.clear();
  is_waiting_ = fresh_ != nullptr;
  if (!is_waiting_) llama_sampler_reset(sampler_.get());
}

Status CheckGrammarText(const Grammar& grammar, const Vocab& vocab) {
  if (!vocab.has_text()) {
    return Fail(Errc::kInvalidRequest, "a grammar needs a model with a tokenizer");
  }
  if (grammar.text.size() > kLongestGrammar) {
    return Fail(Errc::kInvalidRequest, "a grammar of {} bytes is too long (at most {})",
                grammar.text.size(), kLongestGrammar);
  }
  TRY_STATUS(CheckBytes(grammar.text, "grammar"));
  if (grammar.triggers.size() > kMostTriggers) {
    return Fail(Errc::kInvalidRequest, "{} triggers of a grammar are too many (at most {})",
                grammar.triggers.size(), kMostTriggers);
  }
  for (const std::string& trigger : grammar.triggers) {
    if (trigger.empty() || trigger.size() > kLongestTrigger) {
      return Fail(Errc::kInvalidRequest, "a grammar's trigger of {} bytes (1 to {} can be)",
                  trigger.size(), kLongestTrigger);
    }
    TRY_STATUS(CheckBytes(trigger, "grammar's trigger"));
  }
  return {};
}

bool TryGrammar(const Grammar& grammar, const Vocab& vocab, uint32_t n_tokens,
                std::optional<GrammarLimits> limits) {
  llama_log_set(nullptr, nullptr);  // back to stderr, where the parent reads
  if (limits) ProcessorLimit(limits->opening).Resume();
  const auto at_once = GrammarState::Make({grammar.text, {}}, vocab);
  if (!at_once) return false;
  if (!grammar.triggers.empty() && !GrammarState::Make(grammar, vocab)) return false;
  if (limits) ProcessorLimit(limits->token).Resume();
  const Result<std::vector<bool>> allowed = at_once->Allowed(n_tokens);
  if (allowed && std::ranges::contains(*allowed, true)) return true;
  std::fprintf(stderr, "%s\n", allowed ? kAllowsNothing : allowed.error().message.c_str());
  return false;
}

Status GrammarVerdict(const Trial& trial) {
  switch (trial.outcome) {
    case Trial::Outcome::kPassed:
      return {};
    case Trial::Outcome::kRefused:
      return Fail(Errc::kInvalidRequest, "the grammar cannot be used: {}", Reason(trial.output));
    case Trial::Outcome::kCrashed:
      return Fail(Errc::kInvalidRequest,
                  "the grammar cannot be used: libllama's parser does not survive it; make it "
                  "smaller or less nested");
    case Trial::Outcome::kTimedOut:
      return Fail(Errc::kInvalidRequest, "the grammar cannot be used: trying it took too long");
    case Trial::Outcome::kNotRun:
      break;
  }
  return Fail(Errc::kIo, "cannot start a child process to try out the grammar");
}

}  // namespace moestro
