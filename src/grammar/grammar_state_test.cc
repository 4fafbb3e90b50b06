// SPDX-License-Identifier: MIT
#include "grammar/grammar_state.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "tests/support/demo_vocab_testing.h"

namespace moestro {
namespace {

// AllowedOf() checks the vocabulary in parts (grammar_state.cc), Take() a single token.
TEST(GrammarState, OfAllTokensThoseAreAllowedThatCanBeTaken) {
  const uint32_t n_tokens = DemoVocab().size();
  for (const Grammar& grammar :
       {Grammar{"root ::= [a-z]+", {}}, Grammar{"root ::= \" \"? [A-Z] [a-z]*", {}},
        Grammar{"root ::= [^aeiou]+", {}}, Grammar{"root ::= \"e\" [a-d]", {"e"}}}) {
    const auto state = GrammarState::Make(grammar, DemoVocab());
    ASSERT_NE(state, nullptr) << grammar.text;
    const std::vector<bool> allowed = state->Allowed(n_tokens).value();
    ASSERT_EQ(allowed.size(), n_tokens);
    for (uint32_t t = 0; t < n_tokens; ++t) {
      state->Restart();
      EXPECT_EQ(state->Take(static_cast<Token>(t)).value(), allowed[t]) << grammar.text << t;
    }
  }
}

}  // namespace
}  // namespace moestro
