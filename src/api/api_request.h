// SPDX-License-Identifier: MIT
// A client's request for text, whatever wire format it came in.
#pragma once

#include <cstdint>
#include <expected>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "api/api_error.h"
#include "api/reply.h"
#include "chat/chat_types.h"
#include "core/ids.h"
#include "text/sampler.h"

namespace moestro {

enum class ApiKind : uint8_t { kChat, kCompletion, kResponses, kMessages };

// Text, or tokens as they are.
using ApiPrompt = std::variant<std::string, std::vector<Token>>;

struct ApiRequest {
  ApiKind kind = ApiKind::kChat;
  std::string model;               // as sent; empty: none
  ChatInput chat;                  // all kinds but completions
  std::vector<ApiPrompt> prompts;  // completions: a choice of each
  std::string suffix;              // completions: text after the gap, for models that can fill it
  OutputForm form;
  SamplingOptions sampling;       // its grammar is left empty: form says what is wanted
  std::optional<uint32_t> seed;   // not given: a random one is taken
  int64_t max_tokens = -1;        // negative: until something else ends the text
  std::vector<std::string> stops;
  bool stream = false;
  bool include_usage = false;     // chat and completions, streamed: one more event with the usage
  bool echo = false;              // completions: the prompt comes first
  bool logprobs = false;
  uint32_t top_logprobs = 0;      // candidates for each token
  bool cache_prompt = true;
  std::optional<uint32_t> slot;   // "id_slot"
  std::vector<std::string> ignored;  // fields that nobody here knows, for the log
};

// The wire's JSON. 400 with `param` for a field of a wrong type or value; unknown fields are
// ignored. n_vocab: for logit_bias and prompts of tokens.
std::expected<ApiRequest, ApiError> ParseApiRequest(ApiKind kind, std::string_view body,
                                                    uint32_t n_vocab);

// Writes the request's answer in its own format.
std::unique_ptr<ReplyWriter> MakeReplyWriter(const ApiRequest& request, ReplyHead head);

}  // namespace moestro
