// SPDX-License-Identifier: MIT
// Which tokens a text may go on with. One side of it is in this process (grammar_state.h), the
// other in one of its own (grammar_process.h).
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

  // The text goes on with the token if that is allowed; false: it is not. After an error of any of
  // these the text is over. kInvalidRequest with the reason.
  virtual Result<bool> Take(Token token) = 0;
  // Of the first n_tokens tokens.
  virtual Result<std::vector<bool>> Allowed(uint32_t n_tokens) = 0;
  // The next token is the first of a new text.
  virtual void Restart() = 0;
};

}  // namespace moestro
