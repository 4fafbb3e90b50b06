// SPDX-License-Identifier: MIT
// OpenAI's chat completions, n choices.
#include <string>
#include <utility>
#include <vector>

#include "api/writers.h"
#include "base/result.h"

namespace moestro {
namespace {

class ChatWriter final : public ReplyWriter {
 public:
  ChatWriter(const ApiRequest& request, const ReplyHead& head)
      : is_stream_(request.stream),
        has_usage_(request.include_usage),
        has_logprobs_(request.logprobs),
        head_(head),
        answers_(request.n) {}

  std::string Begin() override {
    if (!is_stream_) return "";
    std::string events;
    for (uint32_t i = 0; i < answers_.size(); ++i) {
      Json role = Json::Object();
      role.Set("role", "assistant").Set("content", "");
      events += Chunk(Choice(i, std::move(role), Json(), {}));
    }
    return events;
  }

  std::string Part(const ReplyPart& part, uint32_t choice) override {
    CHECK(choice < answers_.size());
    Answer& answer = answers_[choice];
    if (has_logprobs_) {
      answer.logprobs.insert(answer.logprobs.end(), part.logprobs.begin(), part.logprobs.end());
    }
    std::string events;
    for (const ChatDelta& delta : part.deltas) {
      if (is_stream_)
        events += Say(delta, choice);
      else
        Keep(delta, answer);
    }
    return events;
  }

  std::string Progress(const PromptProgress& progress, uint32_t choice) override {
    if (!is_stream_) return "";
    return Chunk(Choice(choice, Json::Object(), Json(), {}),
                 Json::Object().Set("prompt_progress", ProgressJson(progress)));
  }

  std::string EndChoice(const ReplyEnd& end, uint32_t choice) override {
    CHECK(choice < answers_.size());
    answers_[choice].reason = end.reason;
    AddUsage(end.usage, usage_);
    if (!is_stream_) return "";
    Json finished =
        Choice(choice, Json::Object(), FinishName(end.reason), TakeLogprobs(answers_[choice]));
    if (has_usage_) return Chunk(std::move(finished));
    return Chunk(std::move(finished), Json::Object().Set("timings", TimingsJson(end.usage)));
  }

  std::string End() override {
    if (!is_stream_) return Whole();
    std::string events;
    if (has_usage_) {
      Json more = Json::Object();
      more.Set("usage", UsageJson(usage_)).Set("timings", TimingsJson(usage_));
      events = Chunk(Json::Array(), more);
    }
    return events + StreamEvent("[DONE]");
  }

  std::string Failed(const ApiError& error) override {
    return is_stream_ ? StreamEvent(ErrorBody(error)) : ErrorBody(error);
  }

  std::string Ping() const override { return StreamComment(); }

 private:
  struct Answer {
    std::vector<TokenLogprob> logprobs = {};  // not sent yet
    FinishReason reason = FinishReason::kStop;
    // The whole answer, if it is not streamed.
    std::string content = {};
    std::string reasoning = {};
    std::vector<ToolCall> calls = {};
  };

  Json Head(const char* object) const {
    Json json = Json::Object();
    json.Set("id", "chatcmpl-" + head_.id)
        .Set("object", object)
        .Set("created", head_.created)
        .Set("model", head_.model);
    if (!head_.fingerprint.empty()) json.Set("system_fingerprint", head_.fingerprint);
    return json;
  }

  static Json Choice(uint32_t index, Json delta, Json finish_reason, Json logprobs) {
    Json choice = Json::Object();
    choice.Set("index", index)
        .Set("delta", std::move(delta))
        .Set("logprobs", std::move(logprobs))
        .Set("finish_reason", std::move(finish_reason));
    return std::move(Json::Array().Push(std::move(choice)));
  }

  // `more`: an object whose members follow the choices.
  std::string Chunk(Json choices, const Json& more = Json::Object()) const {
    Json chunk = Head("chat.completion.chunk");
    chunk.Set("choices", std::move(choices));
    for (const auto& [key, value] : more.view().members()) chunk.Set(key, value.Copy());
    return StreamEvent(chunk.Dump());
  }

  // A chunk's logprobs: null if none were requested or none have come.
  static Json TakeLogprobs(Answer& answer) {
    return answer.logprobs.empty() ? Json() : AllLogprobs(answer);
  }

  static Json AllLogprobs(Answer& answer) {
    const std::vector<TokenLogprob> taken = std::exchange(answer.logprobs, {});
    return std::move(Json::Object().Set("content", LogprobsJson(taken)).Set("refusal", {}));
  }

  std::string Say(const ChatDelta& delta, uint32_t choice) {
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
    return Chunk(Choice(choice, std::move(said), Json(), TakeLogprobs(answers_[choice])));
  }

  // Clients append later names and arguments to earlier ones: so the name is sent once, and without
  // arguments.
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

  static void Keep(const ChatDelta& delta, Answer& answer) {
    switch (delta.kind) {
      case ChatDelta::Kind::kContent:
        answer.content += delta.text;
        break;
      case ChatDelta::Kind::kReasoning:
        answer.reasoning += delta.text;
        break;
      case ChatDelta::Kind::kCallBegin:
        answer.calls.push_back({.id = delta.call_id, .name = delta.name, .arguments = {}});
        break;
      case ChatDelta::Kind::kCallArguments:
        if (!answer.calls.empty()) answer.calls.back().arguments += delta.text;
        break;
    }
  }

  static Json Message(const Answer& answer) {
    Json message = Json::Object();
    message.Set("role", "assistant");
    const bool has_calls = !answer.calls.empty();
    message.Set("content", answer.content.empty() && has_calls ? Json() : Json(answer.content));
    if (!answer.reasoning.empty()) message.Set("reasoning_content", answer.reasoning);
    message.Set("refusal", {});
    if (!has_calls) return message;
    Json calls = Json::Array();
    for (const ToolCall& call : answer.calls) {
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
    Json choices = Json::Array();
    for (uint32_t i = 0; i < answers_.size(); ++i) {
      Answer& answer = answers_[i];
      Json choice = Json::Object();
      choice.Set("index", i)
          .Set("message", Message(answer))
          .Set("logprobs", has_logprobs_ ? AllLogprobs(answer) : Json())
          .Set("finish_reason", FinishName(answer.reason));
      choices.Push(std::move(choice));
    }
    Json body = Head("chat.completion");
    body.Set("choices", std::move(choices))
        .Set("usage", UsageJson(usage_))
        .Set("timings", TimingsJson(usage_));
    return body.Dump();
  }

  const bool is_stream_;
  const bool has_usage_;
  const bool has_logprobs_;
  const ReplyHead head_;
  std::vector<Answer> answers_;
  TextUsage usage_;
};

}  // namespace

std::unique_ptr<ReplyWriter> MakeChatWriter(const ApiRequest& request, const ReplyHead& head) {
  return std::make_unique<ChatWriter>(request, head);
}

}  // namespace moestro
