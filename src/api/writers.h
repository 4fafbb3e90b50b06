// SPDX-License-Identifier: MIT
// Writers of the wire formats, and pieces of answers that they share. Inside src/api only.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/api_request.h"
#include "api/reply.h"
#include "base/json.h"

namespace moestro {

// Pieces of answers that several wire formats share. Inside src/api only.

// An event of a stream, ended by the empty line without which clients drop it.
std::string StreamEvent(std::string_view data);
std::string StreamEvent(std::string_view name, const Json& data);
// An empty comment of a stream.
std::string StreamComment();

// "stop", "length", "tool_calls".
const char* FinishName(FinishReason reason);

// {"prompt_tokens", "completion_tokens", "total_tokens", ...}.
Json UsageJson(const TextUsage& usage);
// llama-server's "timings".
Json TimingsJson(const TextUsage& usage);
// llama-server's "prompt_progress".
Json ProgressJson(const PromptProgress& progress);
void AddUsage(const TextUsage& more, TextUsage& sum);

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

// The common part of the formats that answer with a list of items (responses, messages). An item is
// opened, grows and is closed, each with events. Inside src/api only.

class ItemWriter : public ReplyWriter {
 public:
  std::string Part(const ReplyPart& part, uint32_t choice) final;
  std::string EndChoice(const ReplyEnd& end, uint32_t choice) final;

 protected:
  ItemWriter(bool is_stream, bool has_logprobs)
      : is_stream_(is_stream), has_logprobs_(has_logprobs) {}

  // Events of the last item. Called only if the answer is streamed.
  virtual std::string Opened() = 0;
  virtual std::string Grown(const std::string& text, std::span<const TokenLogprob> logprobs) = 0;
  // is_whole: no limit cut the item off.
  virtual std::string Closed(bool is_whole) = 0;

  bool is_stream() const { return is_stream_; }
  const std::vector<AnswerItem>& items() const { return items_; }
  const ReplyEnd& end() const { return end_; }

 private:
  const bool is_stream_;
  const bool has_logprobs_;
  std::vector<AnswerItem> items_;
  std::vector<TokenLogprob> logprobs_;  // waiting for text
  ReplyEnd end_;
};

std::unique_ptr<ReplyWriter> MakeChatWriter(const ApiRequest& request, const ReplyHead& head);
std::unique_ptr<ReplyWriter> MakeCompletionWriter(const ApiRequest& request, const ReplyHead& head);
std::unique_ptr<ReplyWriter> MakeResponsesWriter(const ApiRequest& request, const ReplyHead& head);
std::unique_ptr<ReplyWriter> MakeMessagesWriter(const ApiRequest& request, const ReplyHead& head);
std::unique_ptr<ReplyWriter> MakeOllamaWriter(const ApiRequest& request, const ReplyHead& head);

}  // namespace moestro
