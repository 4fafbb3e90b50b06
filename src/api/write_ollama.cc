// SPDX-License-Identifier: MIT
// Ollama's chat and generate: a line of JSON for each part, or one object. A call comes whole.
#include <cmath>
#include <utility>

#include "api/parse_parts.h"
#include "api/server_bodies.h"
#include "api/writers.h"

namespace moestro {
namespace {

uint64_t Nanoseconds(double seconds) {
  return static_cast<uint64_t>(std::llround(std::max(seconds, 0.0) * 1e9));
}

class OllamaWriter final : public ItemWriter {
 public:
  OllamaWriter(const ApiRequest& request, const ReplyHead& head)
      : ItemWriter(request.stream, false),
        is_chat_(request.kind == ApiKind::kOllamaChat),
        head_(head) {}

  std::string Begin() override { return ""; }

  std::string End() override {
    Texts texts;
    if (!is_stream()) {
      for (const AnswerItem& item : items()) Add(item, texts);
    }
    Json last = Body(std::move(texts), true);
    last.Set("done_reason", end().reason == FinishReason::kLength ? "length" : "stop");
    SetCounts(last);
    return last.Dump() + "\n";
  }

  std::string Failed(const ApiError& error) override { return OllamaErrorBody(error) + "\n"; }

  // A part without text: clients read each line as a part of the answer, so no comment is possible.
  std::string Ping() const override { return Body({}, false).Dump() + "\n"; }

 protected:
  std::string Opened() override { return ""; }

  std::string Grown(const std::string& text, std::span<const TokenLogprob>) override {
    switch (items().back().kind) {
      case ChatDelta::Kind::kContent:
        return Body({.content = text, .thinking = {}, .calls = Json::Array()}, false).Dump() + "\n";
      case ChatDelta::Kind::kReasoning:
        return Body({.content = {}, .thinking = text, .calls = Json::Array()}, false).Dump() + "\n";
      case ChatDelta::Kind::kCallBegin:
      case ChatDelta::Kind::kCallArguments:
        break;
    }
    return "";
  }

  std::string Closed(bool) override {
    if (items().back().kind != ChatDelta::Kind::kCallBegin) return "";
    Texts texts;
    Add(items().back(), texts);
    return texts.calls.size() == 0 ? "" : Body(std::move(texts), false).Dump() + "\n";
  }

 private:
  struct Texts {
    std::string content;
    std::string thinking;
    Json calls = Json::Array();
  };

  // Adds an item. A call whose arguments were cut off is left out.
  void Add(const AnswerItem& item, Texts& texts) {
    if (item.kind == ChatDelta::Kind::kContent) texts.content += item.text;
    if (item.kind == ChatDelta::Kind::kReasoning) texts.thinking += item.text;
    if (item.kind != ChatDelta::Kind::kCallBegin) return;
    const std::string arguments = item.text.empty() ? "{}" : item.text;
    if (end().reason == FinishReason::kLength && !Json::IsJson(arguments)) return;
    Json function = Json::Object();
    function.Set("index", n_calls_++).Set("name", item.name);
    function.Set("arguments", Json::Verbatim(ObjectText(arguments)));
    Json call = Json::Object();
    call.Set("id", item.call_id).Set("function", std::move(function));
    texts.calls.Push(std::move(call));
  }

  Json Body(Texts texts, bool is_last) const {
    Json body = Json::Object();
    body.Set("model", head_.model).Set("created_at", UtcTime(head_.created));
    if (is_chat_) {
      Json message = Json::Object();
      message.Set("role", "assistant").Set("content", texts.content);
      if (!texts.thinking.empty()) message.Set("thinking", texts.thinking);
      if (texts.calls.size() > 0) message.Set("tool_calls", std::move(texts.calls));
      body.Set("message", std::move(message));
    } else {
      body.Set("response", texts.content);
      if (!texts.thinking.empty()) body.Set("thinking", texts.thinking);
    }
    body.Set("done", is_last);
    return body;
  }

  void SetCounts(Json& last) const {
    const TextUsage& usage = end().usage;
    last.Set("total_duration", Nanoseconds(usage.prompt_seconds + usage.completion_seconds))
        .Set("load_duration", 0)
        .Set("prompt_eval_count", usage.prompt_tokens)
        .Set("prompt_eval_duration", Nanoseconds(usage.prompt_seconds))
        .Set("eval_count", usage.completion_tokens)
        .Set("eval_duration", Nanoseconds(usage.completion_seconds));
  }

  const bool is_chat_;
  const ReplyHead head_;
  uint32_t n_calls_ = 0;
};

}  // namespace

std::unique_ptr<ReplyWriter> MakeOllamaWriter(const ApiRequest& request, const ReplyHead& head) {
  return std::make_unique<OllamaWriter>(request, head);
}

}  // namespace moestro
