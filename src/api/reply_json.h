// SPDX-License-Identifier: MIT
// Pieces of answers that several wire formats share. Inside src/api only.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "api/reply.h"
#include "base/json.h"

namespace moestro {

// An event of a stream, ended by the empty line without which clients drop it.
std::string StreamEvent(std::string_view data);
std::string StreamEvent(std::string_view name, const Json& data);
// An empty comment of a stream.
std::string StreamComment();

// "stop", "length", "tool_calls".
const char* FinishName(FinishReason reason);

// {"prompt_tokens", "completion_tokens", "total_tokens", ...}.
Json UsageJson(const ReplyUsage& usage);
// llama-server's "timings".
Json TimingsJson(const ReplyUsage& usage);
// llama-server's "prompt_progress".
Json ProgressJson(const PromptProgress& progress);
void AddUsage(const ReplyUsage& more, ReplyUsage& sum);

// A number with as few digits as distinguish it from other floats: 0.8, not 0.800000011920929. NaN
// becomes null.
Json NumberJson(float number);
// A log-probability. JSON has no infinity: an impossible token is -9999, as OpenAI writes it. NaN
// becomes null.
Json LogprobJson(float logprob);
// [{"token", "logprob", "bytes", "top_logprobs": [...]}].
Json LogprobsJson(std::span<const TokenLogprob> logprobs);
void PushLogprobs(std::span<const TokenLogprob> logprobs, Json& array);

// A part of an answer: a text, thoughts, or a call.
struct AnswerItem {
  ChatDelta::Kind kind = ChatDelta::Kind::kContent;  // kContent, kReasoning or kCallBegin
  std::string text;                                  // for a call: the arguments
  std::string name;
  std::string call_id;
  Json logprobs = Json::Array();  // of the item's tokens, by LogprobsJson()
};

// Whether a delta is the first of a new item after `items`. A delta without text opens an item only
// if it begins a call.
bool OpensItem(std::span<const AnswerItem> items, const ChatDelta& delta);
AnswerItem NewItem(const ChatDelta& delta);

}  // namespace moestro
