// SPDX-License-Identifier: MIT
// Anthropic's Messages. Thoughts are thinking blocks with a signature.
#include <algorithm>
#include <utility>

#include "api/parse_parts.h"
#include "api/writers.h"
#include "base/hash.h"
#include "base/text.h"

namespace moestro {
namespace {

// The signature of a thinking block. Clients give back blocks that have one and drop others. It
// proves nothing, and blocks that come back are read whatever theirs is: a conversation may have
// begun at another server.
std::string SignatureOf(std::string_view thinking) {
  Fnv1a hash;
  hash.Add(thinking);
  return Format("moestro-{:016x}", hash.value());
}

// Input that was computed and input that was not are counted apart.
Json MessagesUsageJson(const TextUsage& usage) {
  Json json = Json::Object();
  json.Set("input_tokens", usage.prompt_tokens - std::min(usage.cached_tokens, usage.prompt_tokens))
      .Set("cache_creation_input_tokens", 0)
      .Set("cache_read_input_tokens", usage.cached_tokens)
      .Set("output_tokens", usage.completion_tokens);
  return json;
}

Json StopReason(const ReplyEnd& end) {
  switch (end.reason) {
    case FinishReason::kLength:
      return "max_tokens";
    case FinishReason::kToolCalls:
      return "tool_use";
    case FinishReason::kStop:
      break;
  }
  return end.stop.empty() ? "end_turn" : "stop_sequence";
}

Json StopSequence(const ReplyEnd& end) {
  return end.reason == FinishReason::kStop && !end.stop.empty() ? Json(end.stop) : Json();
}

class MessagesWriter final : public ItemWriter {
 public:
  MessagesWriter(const ApiRequest& request, const ReplyHead& head)
      : ItemWriter(request.stream, false), head_(head) {}

  std::string Begin() override {
    if (!is_stream()) return "";
    Json message = Message(Json::Array(), {.prompt_tokens = head_.prompt_tokens});
    return TypedEvent("message_start", Json::Object().Set("message", std::move(message)));
  }

  std::string End() override {
    if (!is_stream()) return Whole();
    Json delta = Json::Object();
    delta.Set("stop_reason", StopReason(end())).Set("stop_sequence", StopSequence(end()));
    Json fields = Json::Object();
    fields.Set("delta", std::move(delta)).Set("usage", MessagesUsageJson(end().usage));
    return TypedEvent("message_delta", fields) + TypedEvent("message_stop", Json::Object());
  }

  std::string Failed(const ApiError& error) override {
    const std::string body = MessagesErrorBody(error, head_.request_id);
    return is_stream() ? "event: error\n" + StreamEvent(body) : body;
  }

  std::string Ping() const override { return TypedEvent("ping", Json::Object()); }

 protected:
  std::string Opened() override {
    return TypedEvent("content_block_start",
                      Index().Set("content_block", Block(items().back(), true)));
  }

  std::string Grown(const std::string& text, std::span<const TokenLogprob>) override {
    Json delta = Json::Object();
    switch (items().back().kind) {
      case ChatDelta::Kind::kContent:
        delta.Set("type", "text_delta").Set("text", text);
        break;
      case ChatDelta::Kind::kReasoning:
        delta.Set("type", "thinking_delta").Set("thinking", text);
        break;
      case ChatDelta::Kind::kCallBegin:
      case ChatDelta::Kind::kCallArguments:
        delta.Set("type", "input_json_delta").Set("partial_json", text);
        break;
    }
    return TypedEvent("content_block_delta", Index().Set("delta", std::move(delta)));
  }

  std::string Closed(bool) override {
    const AnswerItem& item = items().back();
    std::string events;
    if (item.kind == ChatDelta::Kind::kReasoning) {
      Json delta = Json::Object();
      delta.Set("type", "signature_delta").Set("signature", SignatureOf(item.text));
      events = TypedEvent("content_block_delta", Index().Set("delta", std::move(delta)));
    }
    return events + TypedEvent("content_block_stop", Index());
  }

 private:
  Json Index() const { return std::move(Json::Object().Set("index", items().size() - 1)); }

  static std::string TypedEvent(const char* type, const Json& fields) {
    Json event = Json::Object();
    event.Set("type", type);
    for (const auto& [key, value] : fields.view().members()) event.Set(key, value.Copy());
    return StreamEvent(type, event);
  }

  // A block; with is_empty, without the content that later events send.
  static Json Block(const AnswerItem& item, bool is_empty) {
    const std::string text = is_empty ? std::string() : item.text;
    Json block = Json::Object();
    if (item.kind == ChatDelta::Kind::kContent)
      return std::move(block.Set("type", "text").Set("text", text));
    if (item.kind == ChatDelta::Kind::kReasoning) {
      block.Set("type", "thinking").Set("thinking", text);
      return std::move(block.Set("signature", is_empty ? "" : SignatureOf(text)));
    }
    block.Set("type", "tool_use").Set("id", item.call_id).Set("name", item.name);
    block.Set("input", Json::Verbatim(ObjectText(text)));
    return block;
  }

  Json Message(Json content, const TextUsage& usage) const {
    Json message = Json::Object();
    message.Set("id", "msg_" + head_.id)
        .Set("type", "message")
        .Set("role", "assistant")
        .Set("model", head_.model)
        .Set("content", std::move(content))
        .Set("stop_reason", {})
        .Set("stop_sequence", {})
        .Set("usage", MessagesUsageJson(usage));
    return message;
  }

  std::string Whole() const {
    Json content = Json::Array();
    for (const AnswerItem& item : items()) content.Push(Block(item, false));
    Json message = Message(std::move(content), end().usage);
    message.Set("stop_reason", StopReason(end())).Set("stop_sequence", StopSequence(end()));
    return message.Dump();
  }

  const ReplyHead head_;
};

}  // namespace

std::unique_ptr<ReplyWriter> MakeMessagesWriter(const ApiRequest& request, const ReplyHead& head) {
  return std::make_unique<MessagesWriter>(request, head);
}

}  // namespace moestro
