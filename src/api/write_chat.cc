// SPDX-License-Identifier: MIT
// OpenAI's chat completions.
#include <utility>
#include <vector>

#include "api/reply_json.h"
#include "api/writers.h"

namespace moestro {
namespace {

class ChatWriter final : public ReplyWriter {
 public:
  ChatWriter(const ApiRequest& request, const ReplyHead& head)
      : is_stream_(request.stream),
        has_usage_(request.include_usage),
        has_logprobs_(request.logprobs),
        head_(head) {}

  std::string Begin() override {
    if (!is_stream_) return "";
    return Chunk(
        Choice(std::move(Json::Object().Set("role", "assistant").Set("content", "")), Json(), {}));
  }

  std::string Part(const ReplyPart& part, uint32_t) override {
    if (has_logprobs_)
      logprobs_.insert(logprobs_.end(), part.logprobs.begin(), part.logprobs.end());
    std::string events;
    for (const ChatDelta& delta : part.deltas) {
      if (is_stream_)
        events += Say(delta);
      else
        Keep(delta);
    }
    return events;
  }

  std::string EndChoice(const ReplyEnd& end, uint32_t) override {
    end_ = end;
    if (!is_stream_) return "";
    Json finished = Choice(Json::Object(), FinishName(end.reason), TakeLogprobs());
    if (has_usage_) return Chunk(std::move(finished));
    return Chunk(std::move(finished), Json::Object().Set("timings", Timings()));
  }

  std::string End() override {
    if (!is_stream_) return Whole();
    std::string events;
    if (has_usage_) {
      Json more = Json::Object();
      more.Set("usage", UsageJson(end_.usage)).Set("timings", Timings());
      events = Chunk(Json::Array(), more);
    }
    return events + StreamEvent("[DONE]");
  }

  std::string Failed(const ApiError& error) override {
    return is_stream_ ? StreamEvent(ErrorBody(error)) : ErrorBody(error);
  }

  std::string Ping() const override { return StreamComment(); }

 private:
  Json Timings() const { return TimingsJson(end_.usage); }

  Json Head(const char* object) const {
    Json json = Json::Object();
    json.Set("id", "chatcmpl-" + head_.id)
        .Set("object", object)
        .Set("created", head_.created)
        .Set("model", head_.model);
    if (!head_.fingerprint.empty()) json.Set("system_fingerprint", head_.fingerprint);
    return json;
  }

  static Json Choice(Json delta, Json finish_reason, Json logprobs) {
    Json choice = Json::Object();
    choice.Set("index", 0)
        .Set("delta", std::move(delta))
        .Set("logprobs", std::move(logprobs))
        .Set("finish_reason", std::move(finish_reason));
    return std::move(Json::Array().Push(std::move(choice)));
  }

  // `more`: an object whose members come after the choices.
  std::string Chunk(Json choices, const Json& more = Json::Object()) const {
    Json chunk = Head("chat.completion.chunk");
    chunk.Set("choices", std::move(choices));
    for (const auto& [key, value] : more.view().members()) chunk.Set(key, value.Copy());
    return StreamEvent(chunk.Dump());
  }

  // Of a chunk: null if none are asked for or none have come.
  Json TakeLogprobs() { return logprobs_.empty() ? Json() : AllLogprobs(); }

  Json AllLogprobs() {
    const std::vector<TokenLogprob> taken = std::exchange(logprobs_, {});
    return std::move(Json::Object().Set("content", LogprobsJson(taken)).Set("refusal", {}));
  }

  std::string Say(const ChatDelta& delta) {
    if (delta.kind != ChatDelta::Kind::kCallBegin && delta.text.empty()) return "";
    Json said = Json::Object();
    switch (delta.kind) {
      case ChatDelta::Kind::kContent:
        said.Set("content", delta.text);
        break;
      case ChatDelta::Kind::kReasoning:
        said.Set("reasoning_content", delta.text);
        break;
      case ChatDelta::Kind::kCallBegin:
      case ChatDelta::Kind::kCallArguments:
        said.Set("tool_calls", std::move(Json::Array().Push(Call(delta))));
        break;
    }
    return Chunk(Choice(std::move(said), Json(), TakeLogprobs()));
  }

  // Clients add names and arguments up: the name comes once, and no argument comes with it.
  static Json Call(const ChatDelta& delta) {
    Json call = Json::Object();
    call.Set("index", delta.call);
    Json function = Json::Object();
    if (delta.kind == ChatDelta::Kind::kCallBegin) {
      call.Set("id", delta.call_id).Set("type", "function");
      function.Set("name", delta.name).Set("arguments", "");
    } else {
      function.Set("arguments", delta.text);
    }
    call.Set("function", std::move(function));
    return call;
  }

  void Keep(const ChatDelta& delta) {
    switch (delta.kind) {
      case ChatDelta::Kind::kContent:
        content_ += delta.text;
        break;
      case ChatDelta::Kind::kReasoning:
        reasoning_ += delta.text;
        break;
      case ChatDelta::Kind::kCallBegin:
        calls_.push_back({.id = delta.call_id, .name = delta.name, .arguments = {}});
        break;
      case ChatDelta::Kind::kCallArguments:
        if (!calls_.empty()) calls_.back().arguments += delta.text;
        break;
    }
  }

  Json Message() const {
    Json message = Json::Object();
    message.Set("role", "assistant");
    message.Set("content", content_.empty() && !calls_.empty() ? Json() : Json(content_));
    if (!reasoning_.empty()) message.Set("reasoning_content", reasoning_);
    message.Set("refusal", {});
    if (calls_.empty()) return message;
    Json calls = Json::Array();
    for (const ToolCall& call : calls_) {
      Json function = Json::Object();
      function.Set("name", call.name).Set("arguments", call.arguments);
      Json json = Json::Object();
      json.Set("id", call.id).Set("type", "function").Set("function", std::move(function));
      calls.Push(std::move(json));
    }
    message.Set("tool_calls", std::move(calls));
    return message;
  }

  std::string Whole() {
    Json choice = Json::Object();
    choice.Set("index", 0)
        .Set("message", Message())
        .Set("logprobs", has_logprobs_ ? AllLogprobs() : Json())
        .Set("finish_reason", FinishName(end_.reason));
    Json body = Head("chat.completion");
    body.Set("choices", std::move(Json::Array().Push(std::move(choice))))
        .Set("usage", UsageJson(end_.usage))
        .Set("timings", Timings());
    return body.Dump();
  }

  const bool is_stream_;
  const bool has_usage_;
  const bool has_logprobs_;
  const ReplyHead head_;
  std::vector<TokenLogprob> logprobs_;  // not sent yet
  ReplyEnd end_;
  std::string content_;
  std::string reasoning_;
  std::vector<ToolCall> calls_;
};

}  // namespace

std::unique_ptr<ReplyWriter> MakeChatWriter(const ApiRequest& request, const ReplyHead& head) {
  return std::make_unique<ChatWriter>(request, head);
}

}  // namespace moestro
