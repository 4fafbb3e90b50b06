// SPDX-License-Identifier: MIT
// A client's request for text, of any wire format.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "api/api_error.h"
#include "api/reply.h"
#include "base/json.h"
#include "base/work_limit.h"
#include "chat/chat_types.h"
#include "core/ids.h"
#include "text/sampler.h"

namespace moestro {

enum class ApiKind : uint8_t {
  kChat,
  kCompletion,
  kResponses,
  kMessages,
  kOllamaChat,
  kOllamaGenerate
};

// Text, or tokens as they are.
using ApiPrompt = std::variant<std::string, std::vector<Token>>;

// Functions that a client keeps in namespaces, as Codex does for each MCP server. Maps namespace
// and name to the name in the model's prompt: the same name, or, where tools have a name in common,
// one with the namespace before it.
using NamespacedTools = std::map<std::pair<std::string, std::string>, std::string>;

// responses: the conversation up to an answer that the server has stored, that answer included, as
// an array of items. 400: this client has no such answer. Empty: the server stores no answers.
using RecallItems = std::function<ApiResult<Json>(const std::string& id)>;

struct ApiRequest {
  ApiKind kind = ApiKind::kChat;
  std::string model;               // as sent; empty: no name was sent
  ChatInput chat;                  // all kinds but completions
  NamespacedTools namespaced;      // responses: tools of `chat`
  std::vector<ApiPrompt> prompts;  // for texts without turns: n choices of each
  uint32_t n = 1;  // answers to a prompt; with a seed, the next ones' are seed + 1, ...
  OutputForm form;
  // The defaults are those of llama.cpp's programs, as everywhere in Moestro; not OpenAI's
  // temperature of 1. The grammar is empty: `form` determines the answer's form.
  SamplingOptions sampling;
  std::optional<uint32_t> seed;  // not given, or -1: a random one is taken
  int64_t max_tokens = -1;       // negative: until something else ends the text
  std::vector<std::string> stops;
  std::vector<Token> stop_tokens;  // end the text as the model's own end tokens do
  uint32_t min_tokens = 0;  // before so many tokens no end token and no stop string ends the text
  double seconds = 0.0;     // most, from the request to the answer's end; 0: no limit
  double writing_seconds = 0.0;  // most, from the first token to a line's end; 0: no limit
  bool return_progress = false;  // streamed: how far the prompt is
  bool stream = false;
  bool include_usage = false;  // chat and completions, streamed: one more event with the usage
  bool echo = false;           // completions: the prompt comes first (reply.h)
  bool logprobs = false;
  uint32_t top_logprobs = 0;  // candidates for each token
  bool cache_prompt = true;
  uint64_t needed_context = 0;  // tokens for which the client needs room; 0: not sent
  bool stores = false;          // responses: the answer shall be stored
  std::string previous = {};  // responses: the id of a stored answer that the request goes on from
  std::string items = {};     // responses that are stored: the conversation, as RecallItems has it
  bool is_load = false;       // Ollama's: a request without a prompt, which only loads the model
  std::vector<std::string> ignored;  // unused fields, for the log; printable
  // Requested features that are left out, as sentences for the client; printable.
  std::vector<std::string> warnings;
};

// A text goes on, without turns and marks.
inline bool GoesOn(const ApiRequest& request) { return !request.prompts.empty(); }

// The purpose of a body. The endpoints input_tokens, count_tokens and apply-template take the body
// of a request, of which only the input counts.
enum class ApiPurpose : uint8_t { kAnswer, kInput };

// Reads a request's JSON. 400, with `param` where a field is at fault: the body is not UTF-8 or not
// JSON, a field has a wrong kind or value, the request needs pictures or state of the server. null
// is the same as absent. Of equal keys the last counts. n_vocab: for logit_bias and prompts of
// tokens.
//
// Several texts in one content are joined by line ends. Arguments of an earlier call that are no
// JSON object become {"input": the text}. Tools that are no functions and items that need a
// server's memory are left out with a warning; 400 only where the request demands such a tool. A
// schema is printed anew without blanks, with the keys in their order, and so is a call's input
// that is no string. An error of the limit as in ParseBody(). Errors of `recall`.
ApiResult<ApiRequest> ParseApiRequest(ApiKind kind, std::string_view body, uint32_t n_vocab,
                                      ApiPurpose purpose = ApiPurpose::kAnswer,
                                      const WorkLimit& limit = {}, const RecallItems& recall = {});

// The content type of a streamed answer, and an error's body, in the kind's format.
const char* StreamType(ApiKind kind);
std::string ErrorBodyFor(ApiKind kind, const ApiError& error, std::string_view request_id);

// A writer of the request's answer, in the request's format.
std::unique_ptr<ReplyWriter> MakeReplyWriter(const ApiRequest& request, const ReplyHead& head);

}  // namespace moestro
