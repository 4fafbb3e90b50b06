// SPDX-License-Identifier: MIT
// The set of tokens with which a text may go on. grammar_state.h implements it in this process,
// grammar_process.h by a process of its own.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "core/ids.h"

namespace moestro {

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
