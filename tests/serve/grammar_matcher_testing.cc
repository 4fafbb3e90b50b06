// SPDX-License-Identifier: MIT
#include "tests/serve/grammar_matcher_testing.h"

#include <gtest/gtest.h>
#include <llama.h>

#include <cmath>
#include <memory>
#include <utility>

namespace moestro {
namespace {

bool AllowsToken(llama_sampler* grammar, Token token) {
  llama_token_data one{token, 0.0F, 0.0F};
  llama_token_data_array array{&one, 1, -1, false};
  llama_sampler_apply(grammar, &array);
  return !std::isinf(one.logit);
}

}  // namespace

GrammarMatcher::GrammarMatcher() {
  auto vocab = Vocab::Load(MOESTRO_SOURCE_DIR "/models/stories-moe-q8_0.gguf");
  if (!vocab) {
    ADD_FAILURE() << vocab.error().message;
    return;
  }
  vocab_ = std::move(*vocab);
  bytes_.fill(-1);
  for (Token token = 0; token < static_cast<Token>(vocab_->size()); ++token) {
    if (vocab_->is_end(token)) end_ = token;
    const std::string piece = vocab_->Piece(token);
    if (piece.size() == 1) bytes_[static_cast<unsigned char>(piece[0])] = token;
  }
}

bool GrammarMatcher::Allows(const std::string& grammar, std::string_view text) const {
  const std::unique_ptr<llama_sampler, void (*)(llama_sampler*)> sampler(
      llama_sampler_init_grammar(vocab_->raw(), grammar.c_str(), "root"), llama_sampler_free);
  if (!sampler) {
    ADD_FAILURE() << "not a grammar:\n" << grammar.substr(0, 4000);
    return false;
  }
  for (const char c : text) {
    const Token token = bytes_[static_cast<unsigned char>(c)];
    EXPECT_GE(token, 0) << "no token for byte " << static_cast<int>(c);
    if (token < 0 || !AllowsToken(sampler.get(), token)) return false;
    llama_sampler_accept(sampler.get(), token);
  }
  return AllowsToken(sampler.get(), end_);
}

}  // namespace moestro
