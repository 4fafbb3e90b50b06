// SPDX-License-Identifier: MIT
// One request: prompt in, text out, until something ends it.
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

namespace moestro {

struct GenerateOptions {
  int64_t max_tokens = -1;              // new tokens; negative: until something else ends the text
  std::vector<std::string> stops = {};  // the text ends before the first of these
};

// What turns logits into tokens and tokens into text.
struct TextParts {
  std::function<Result<Token>(std::span<const float> logits)> pick;
  std::function<std::string(Token)> piece;  // bytes; may be part of a character
  std::function<bool(Token)> is_end;
  // Gets text as it becomes certain, whole UTF-8 characters. False: the caller listens no more.
  std::function<bool(std::string_view)> emit;
};

enum class StopReason {
  kEndToken,
  kLimit,
  kStopString,
  kContextFull,
  kTimeLimit,
  kInterrupted,
  kOutputClosed
};
std::string_view ToString(StopReason reason);  // "end", "limit", ... for reports

struct Generated {
  std::string text;           // as emitted
  std::vector<Token> tokens;  // as picked, without the end token. The last one may not be part of
                              // the sequence: Stepper::position() tells.
  StopReason reason = StopReason::kEndToken;
};

// Appends `prompt` to the sequence and continues it. An interruption is a StopReason, not an error.
// Errors: kInvalidRequest for a prompt that is empty or does not fit; whatever Append() and pick()
// say. Text made before an error has been emitted.
Result<Generated> Generate(Stepper& stepper, const TextParts& parts, std::span<const Token> prompt,
                           const GenerateOptions& options);

// How many tokens at the start of both are the same.
size_t CommonPrefix(std::span<const Token> a, std::span<const Token> b);

}  // namespace moestro
