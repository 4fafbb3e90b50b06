// SPDX-License-Identifier: MIT
#include "text/generate.h"

#include <algorithm>
#include <utility>

#include "text/stop.h"
#include "text/utf8_stream.h"

namespace moestro {
namespace {

// Turns tokens into the text for the user: whole characters, and no part of a stop string.
class Writer {
 public:
  Writer(const TextParts& parts, const GenerateOptions& options, Generated& result)
      : parts_(parts), stop_(options.stops), result_(result) {}

  void Add(Token token) { Emit(stop_.Push(utf8_.Push(parts_.piece(token)))); }
  void Finish() {
    Emit(stop_.Push(utf8_.Flush()));
    if (!stop_.found()) Emit(stop_.Flush());
  }
  bool found_stop() const { return stop_.found(); }
  bool is_closed() const { return is_closed_; }

 private:
  void Emit(const std::string& text) {
    if (text.empty() || is_closed_) return;
    result_.text += text;
    is_closed_ = !parts_.emit(text);
  }

  const TextParts& parts_;
  Utf8Stream utf8_;
  StopMatcher stop_;
  Generated& result_;
  bool is_closed_ = false;
};

Status CheckPrompt(const Stepper& stepper, std::span<const Token> prompt) {
  if (prompt.empty()) return Fail(Errc::kInvalidRequest, "the prompt is empty; give one with -p");
  const uint64_t room = stepper.n_ctx() - stepper.position();
  if (prompt.size() <= room) return {};
  return Fail(Errc::kInvalidRequest,
              "a prompt of {} tokens does not fit the {} left of a context of {}; shorten it or "
              "raise --ctx",
              prompt.size(), room, stepper.n_ctx());
}

Result<StopReason> Run(Stepper& stepper, const TextParts& parts, std::span<const Token> prompt,
                       int64_t max_tokens, Writer& writer, std::vector<Token>& tokens) {
  Result<std::span<const float>> logits = stepper.Append(prompt);
  while (true) {
    if (!logits) {
      if (logits.error().code == Errc::kInterrupted) return StopReason::kInterrupted;
      return std::unexpected(std::move(logits).error());
    }
    if (std::cmp_equal(tokens.size(), max_tokens)) return StopReason::kLimit;
    if (stepper.position() == stepper.n_ctx()) return StopReason::kContextFull;
    TRY(const Token token, parts.pick(*logits));
    if (parts.is_end(token)) return StopReason::kEndToken;
    tokens.push_back(token);
    writer.Add(token);
    if (writer.is_closed()) return StopReason::kOutputClosed;
    if (writer.found_stop()) return StopReason::kStopString;
    // Checked before the step, whose logits would not be used.
    if (std::cmp_equal(tokens.size(), max_tokens)) return StopReason::kLimit;
    if (stepper.position() + 1 == stepper.n_ctx()) return StopReason::kContextFull;
    logits = stepper.Append(std::span(&tokens.back(), 1));
  }
}

}  // namespace

Result<Generated> Generate(Stepper& stepper, const TextParts& parts, std::span<const Token> prompt,
                           const GenerateOptions& options) {
  TRY_STATUS(CheckPrompt(stepper, prompt));
  Generated result;
  Writer writer(parts, options, result);
  const Result<StopReason> reason =
      Run(stepper, parts, prompt, options.max_tokens, writer, result.tokens);
  writer.Finish();
  if (!reason) return std::unexpected(reason.error());
  result.reason = *reason;
  return result;
}

}  // namespace moestro
