// SPDX-License-Identifier: MIT
// Generates the text of one request from its prompt, until a limit, a stop string or an end token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "text/stepper.h"
#include "text/text_request.h"

namespace moestro {

// The functions that turn logits into tokens and tokens into text.
struct TextParts {
  std::function<Result<Token>(std::span<const float> logits)> pick;
  std::function<std::string(Token)> piece;  // bytes; may be part of a character
  std::function<bool(Token)> is_end;
  // Called with text as soon as it is certain, in whole UTF-8 characters. False: the caller takes
  // no more text.
  std::function<bool(std::string_view)> emit;
};

struct Generated {
  std::string text;  // as emitted
  // as picked, without the end token. The last token may not be part of the sequence; see
  // Stepper::position().
  std::vector<Token> tokens;
  StopReason reason = StopReason::kEndToken;
};

// Appends `prompt` to the sequence and continues it. An interruption is a StopReason, not an error.
// Errors: kInvalidRequest for a prompt that is empty or does not fit; errors of Append() and
// pick(). Text made before an error has been emitted.
Result<Generated> Generate(Stepper& stepper, const TextParts& parts, std::span<const Token> prompt,
                           const GenerateOptions& options);

}  // namespace moestro
