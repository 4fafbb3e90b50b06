// SPDX-License-Identifier: MIT
#include <utility>

#include "api/parse_parts.h"
#include "base/format.h"

namespace moestro {
namespace {

constexpr size_t kMostPrompts = 256;

ApiStatus AddTokens(JsonView array, const std::string& where, uint32_t n_vocab,
                    ApiRequest& request) {
  TRY(std::vector<Token> tokens, ReadTokenIds(array, where, n_vocab));
  if (tokens.empty()) return BadRequest(where, Format("\"{}\" must have a token", where));
  request.prompts.emplace_back(std::move(tokens));
  return {};
}

// Reads a string or tokens: an array of numbers is one prompt, any other array a list of prompts.
ApiStatus ReadPrompts(BodyFields& body, uint32_t n_vocab, ApiRequest& request) {
  constexpr std::string_view kKey = "prompt";
  const auto prompt = body.Find(kKey);
  if (!prompt) return BadRequest("prompt", "\"prompt\" is missing");
  if (auto text = prompt->text()) {
    request.prompts.emplace_back(*std::move(text));
    return {};
  }
  if (prompt->kind() != JsonKind::kArray || prompt->size() == 0)
    return WrongValue("prompt", "a string, an array of strings, or tokens", *prompt);
  if (prompt->At(0)->kind() == JsonKind::kNumber)
    return AddTokens(*prompt, "prompt", n_vocab, request);
  if (prompt->size() > kMostPrompts)
    return WrongValue("prompt", Format("at most {} prompts", kMostPrompts), *prompt);
  for (size_t i = 0; i < prompt->size(); ++i) {
    const JsonView one = *prompt->At(i);
    if (auto text = one.text()) {
      request.prompts.emplace_back(*std::move(text));
      continue;
    }
    if (one.kind() != JsonKind::kArray)
      return WrongValue(body.Name(kKey, i), "a string or an array of tokens", one);
    TRY_STATUS(AddTokens(one, body.Name(kKey, i), n_vocab, request));
  }
  return {};
}

}  // namespace

ApiStatus ReadCompletionBody(BodyFields& body, uint32_t n_vocab, ApiRequest& request) {
  TRY_STATUS(ReadPrompts(body, n_vocab, request));
  TRY(std::optional<std::string> suffix, body.Text("suffix"));
  if (suffix && !suffix->empty()) {
    return BadRequest(
        "suffix",
        "\"suffix\" asks for the middle of a text, which is not offered: leave it out "
        "and the prompt goes on");
  }
  TRY(const auto echo, body.Boolean("echo"));
  request.echo = echo.value_or(false);
  TRY(const auto logprobs, body.Integer("logprobs", {.least = 0, .most = 20}));
  request.logprobs = logprobs.has_value();
  request.top_logprobs = static_cast<uint32_t>(logprobs.value_or(0));
  TRY(std::optional<BodyFields> options, body.Fields("stream_options"));
  if (options) {
    TRY(const auto include_usage, options->Boolean("include_usage"));
    request.include_usage = include_usage.value_or(false);
  }
  TRY(std::optional<BodyFields> format, body.Fields("response_format"));
  if (format) TRY_STATUS(ReadFormat(*format, false, request.form));
  TRY_STATUS(ReadMaxTokens(body, {"max_tokens", "n_predict"}, request));
  TRY_STATUS(ReadStops(body, "stop", request));
  TRY_STATUS(ReadAnswers(body, request.prompts.size(), request));
  TRY(const auto best_of, body.Integer("best_of", {.least = 0}));
  if (!best_of || *best_of == request.n) return {};
  return WrongValue("best_of",
                    Format("{}, as many as \"n\": all answers are given back", request.n),
                    *body.Find("best_of"));
}

}  // namespace moestro
