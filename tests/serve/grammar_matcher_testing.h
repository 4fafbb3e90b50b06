// SPDX-License-Identifier: MIT
// Whether libllama's grammar sampler lets a text through, byte by byte, with the demo model's
// vocabulary.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "model/vocab.h"

namespace moestro {

class GrammarMatcher {
 public:
  GrammarMatcher();  // a test fails if there is no vocabulary
  // The whole text is one that the grammar allows. A grammar that cannot be parsed is a failure of
  // the test.
  bool Allows(const std::string& grammar, std::string_view text) const;

 private:
  std::optional<Vocab> vocab_;
  std::array<Token, 256> bytes_{};
  Token end_ = 0;
};

}  // namespace moestro
