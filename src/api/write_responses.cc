// SPDX-License-Identifier: MIT
// OpenAI's Responses. Thoughts are reasoning items with their text as content.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "api/writers.h"
#include "base/text.h"

namespace moestro {
namespace {

// The client's place for a tool.
struct ToolHome {
  std::string space;  // empty: in no namespace
  std::string name;
};

// Finds the client's namespace and name by the model's name for a tool.
class ToolHomes {
 public:
  explicit ToolHomes(const NamespacedTools& tools) {
    for (const auto& [home, told] : tools) homes_[told] = {home.first, home.second};
  }
  ToolHome Of(const std::string& told) const {
    const auto home = homes_.find(told);
    return home == homes_.end() ? ToolHome{.space = {}, .name = told} : home->second;
  }

 private:
  std::map<std::string, ToolHome> homes_;
};

// Sets the client's name of a tool.
void SetToolName(const ToolHome& home, Json& json) {
  json.Set("name", home.name);
  if (!home.space.empty()) json.Set("namespace", home.space);
}

Json ToolJson(const Tool& tool, const std::string& name) {
  Json json = Json::Object();
  json.Set("type", "function").Set("name", name);
  json.Set("description", tool.description.empty() ? Json() : Json(tool.description));
  auto parameters = Json::Parse(tool.parameters);
  json.Set("parameters", parameters ? *std::move(parameters) : Json());
  json.Set("strict", false);
  return json;
}

// Neighbours of one namespace in one entry.
Json ToolsJson(const std::vector<Tool>& tools, const ToolHomes& homes) {
  Json json = Json::Array();
  for (size_t i = 0; i < tools.size();) {
    const std::string space = homes.Of(tools[i].name).space;
    if (space.empty()) {
      json.Push(ToolJson(tools[i], tools[i].name));
      ++i;
      continue;
    }
    Json inner = Json::Array();
    for (; i < tools.size() && homes.Of(tools[i].name).space == space; ++i) {
      inner.Push(ToolJson(tools[i], homes.Of(tools[i].name).name));
    }
    Json group = Json::Object();
    group.Set("type", "namespace").Set("name", space).Set("tools", std::move(inner));
    json.Push(std::move(group));
  }
  return json;
}

Json ToolChoiceJson(const ChatInput& chat, const ToolHomes& homes) {
  switch (chat.tool_use) {
    case ToolUse::kAuto:
      return "auto";
    case ToolUse::kNone:
      return "none";
    case ToolUse::kRequired:
      return "required";
    case ToolUse::kNamed:
      break;
  }
  Json json = Json::Object();
  json.Set("type", "function");
  SetToolName(homes.Of(chat.named_tool), json);
  return json;
}

Json TextFormatJson(const OutputForm& form) {
  Json format = Json::Object();
  if (form.kind == OutputForm::Kind::kJsonObject)
    return std::move(format.Set("type", "json_object"));
  if (form.kind != OutputForm::Kind::kJsonSchema) return std::move(format.Set("type", "text"));
  auto schema = Json::Parse(form.definition);
  format.Set("type", "json_schema").Set("name", "schema");
  format.Set("schema", schema ? *std::move(schema) : Json()).Set("strict", true);
  return format;
}

// The request's fields, as the answer repeats them.
Json AskedJson(const ApiRequest& request, const ToolHomes& homes) {
  Json json = Json::Object();
  json.Set("instructions", {})
      .Set("max_output_tokens", request.max_tokens < 0 ? Json() : Json(request.max_tokens))
      .Set("metadata", Json::Object())
      .Set("parallel_tool_calls", request.chat.parallel_calls)
      .Set("previous_response_id", request.previous.empty() ? Json() : Json(request.previous))
      .Set("temperature", NumberJson(request.sampling.temp))
      .Set("text", std::move(Json::Object().Set("format", TextFormatJson(request.form))))
      .Set("tool_choice", ToolChoiceJson(request.chat, homes))
      .Set("tools", ToolsJson(request.chat.tools, homes))
      .Set("top_p", NumberJson(request.sampling.top_p))
      .Set("truncation", "disabled");
  return json;
}

Json ResponsesUsageJson(const TextUsage& usage) {
  Json json = Json::Object();
  json.Set("input_tokens", usage.prompt_tokens)
      .Set("input_tokens_details",
           std::move(Json::Object().Set("cached_tokens", usage.cached_tokens)))
      .Set("output_tokens", usage.completion_tokens)
      .Set("output_tokens_details",
           std::move(Json::Object().Set("reasoning_tokens", usage.reasoning_tokens)))
      .Set("total_tokens", uint64_t{usage.prompt_tokens} + usage.completion_tokens);
  return json;
}

class ResponsesWriter final : public ItemWriter {
 public:
  ResponsesWriter(const ApiRequest& request, const ReplyHead& head)
      : ItemWriter(request.stream, request.logprobs),
        head_(head),
        homes_(request.namespaced),
        asked_(AskedJson(request, homes_)),
        is_stored_(request.stores) {}

  std::string Begin() override {
    if (!is_stream()) return "";
    std::string events = ResponseEvent("response.created", "in_progress");
    events += ResponseEvent("response.in_progress", "in_progress");
    return events;
  }

  std::string End() override {
    const bool is_cut = end().reason == FinishReason::kLength;
    const char* status = is_cut ? "incomplete" : "completed";
    if (!is_stream()) return Response(status).Dump();
    return ResponseEvent(is_cut ? "response.incomplete" : "response.completed", status);
  }

  std::optional<StoredAnswer> ToStore() const override {
    if (!is_stored_) return std::nullopt;
    const bool is_cut = end().reason == FinishReason::kLength;
    return StoredAnswer{.id = Id(),
                        .reply = Response(is_cut ? "incomplete" : "completed").Dump(),
                        .items = Output(is_cut, false).Dump()};
  }
  void NotStored() override { is_stored_ = false; }

  std::string Failed(const ApiError& error) override {
    if (!is_stream()) return ErrorBody(error);
    error_ = error;
    return ResponseEvent("response.failed", "failed");
  }

  std::string Ping() const override { return StreamComment(); }

 protected:
  std::string Opened() override {
    Json event = ItemEvent();
    event.Set("item", ItemJson(Last(), "in_progress", true));
    std::string events = Event("response.output_item.added", std::move(event));
    if (!HasParts()) return events;
    event = PlacedEvent();
    event.Set("part", PartJson(Last(), "", Json::Array()));
    return events + Event("response.content_part.added", std::move(event));
  }

  std::string Grown(const std::string& text, std::span<const TokenLogprob> logprobs) override {
    Json event = HasParts() ? PlacedEvent() : IdEvent();
    event.Set("delta", text);
    if (items().back().kind == ChatDelta::Kind::kContent)
      event.Set("logprobs", LogprobsJson(logprobs));
    return Event(TextEventName("delta"), std::move(event));
  }

  std::string Closed(bool is_whole) override {
    const AnswerItem& item = items().back();
    Json event = HasParts() ? PlacedEvent() : IdEvent();
    event.Set(HasParts() ? "text" : "arguments", item.text);
    if (item.kind == ChatDelta::Kind::kContent) event.Set("logprobs", item.logprobs.view().Copy());
    if (item.kind == ChatDelta::Kind::kCallBegin) event.Set("name", homes_.Of(item.name).name);
    std::string events = Event(TextEventName("done"), std::move(event));
    if (HasParts()) {
      event = PlacedEvent();
      event.Set("part", PartJson(Last(), item.text, item.logprobs.view().Copy()));
      events += Event("response.content_part.done", std::move(event));
    }
    event = ItemEvent();
    event.Set("item", ItemJson(Last(), is_whole ? "completed" : "incomplete", true));
    return events + Event("response.output_item.done", std::move(event));
  }

 private:
  std::string Id() const { return "resp_" + head_.id; }
  size_t Last() const { return items().size() - 1; }
  // Calls have arguments, other items a part with text.
  bool HasParts() const { return items().back().kind != ChatDelta::Kind::kCallBegin; }

  std::string TextEventName(const char* what) const {
    switch (items().back().kind) {
      case ChatDelta::Kind::kContent:
        return Format("response.output_text.{}", what);
      case ChatDelta::Kind::kReasoning:
        return Format("response.reasoning_text.{}", what);
      case ChatDelta::Kind::kCallBegin:
      case ChatDelta::Kind::kCallArguments:
        break;
    }
    return Format("response.function_call_arguments.{}", what);
  }

  std::string ItemId(size_t index) const {
    switch (items()[index].kind) {
      case ChatDelta::Kind::kContent:
        return Format("msg_{}_{}", head_.id, index);
      case ChatDelta::Kind::kReasoning:
        return Format("rs_{}_{}", head_.id, index);
      case ChatDelta::Kind::kCallBegin:
      case ChatDelta::Kind::kCallArguments:
        break;
    }
    return Format("fc_{}_{}", head_.id, index);
  }

  // Fields of events, which name more or less of a place: the item, its id, its part.
  Json ItemEvent() const { return std::move(Json::Object().Set("output_index", Last())); }
  Json IdEvent() const {
    return std::move(Json::Object().Set("item_id", ItemId(Last())).Set("output_index", Last()));
  }
  Json PlacedEvent() const { return std::move(IdEvent().Set("content_index", 0)); }

  std::string Event(const std::string& type, Json fields) {
    Json event = Json::Object();
    event.Set("type", type).Set("sequence_number", n_events_++);
    for (const auto& [key, value] : fields.view().members()) event.Set(key, value.Copy());
    return StreamEvent(type, event);
  }

  std::string ResponseEvent(const char* type, const char* status) {
    return Event(type, std::move(Json::Object().Set("response", Response(status))));
  }

  Json PartJson(size_t index, const std::string& text, Json logprobs) const {
    Json part = Json::Object();
    if (items()[index].kind == ChatDelta::Kind::kReasoning)
      return std::move(part.Set("type", "reasoning_text").Set("text", text));
    part.Set("type", "output_text")
        .Set("text", text)
        .Set("annotations", Json::Array())
        .Set("logprobs", std::move(logprobs));
    return part;
  }

  // An item that was just opened is without content yet.
  Json ItemJson(size_t index, const char* status, bool with_logprobs) const {
    const AnswerItem& item = items()[index];
    Json json = Json::Object();
    json.Set("id", ItemId(index));
    if (item.kind == ChatDelta::Kind::kCallBegin) {
      json.Set("type", "function_call").Set("call_id", item.call_id);
      SetToolName(homes_.Of(item.name), json);
      json.Set("arguments", item.text).Set("status", status);
      return json;
    }
    Json content = Json::Array();
    Json logprobs = with_logprobs ? item.logprobs.view().Copy() : Json::Array();
    if (!item.text.empty()) content.Push(PartJson(index, item.text, std::move(logprobs)));
    if (item.kind == ChatDelta::Kind::kReasoning)
      json.Set("type", "reasoning").Set("summary", Json::Array());
    else
      json.Set("type", "message").Set("role", "assistant");
    json.Set("content", std::move(content)).Set("status", status);
    return json;
  }

  Json Output(bool is_cut, bool with_logprobs) const {
    Json output = Json::Array();
    for (size_t i = 0; i < items().size(); ++i) {
      const char* status = is_cut && i == Last() ? "incomplete" : "completed";
      output.Push(ItemJson(i, status, with_logprobs));
    }
    return output;
  }

  Json Response(const std::string& status) const {
    Json json = Json::Object();
    json.Set("id", Id())
        .Set("object", "response")
        .Set("created_at", head_.created)
        .Set("status", status)
        .Set("error", {})
        .Set("incomplete_details", {})
        .Set("model", head_.model)
        .Set("output",
             status == "in_progress" ? Json::Array() : Output(status != "completed", true))
        .Set("usage", {});
    if (status == "incomplete")
      json.Set("incomplete_details", std::move(Json::Object().Set("reason", "max_output_tokens")));
    if (status == "completed" || status == "incomplete")
      json.Set("usage", ResponsesUsageJson(end().usage));
    if (status == "failed") {
      Json error = Json::Object();
      error.Set("code", error_.code.empty() ? error_.type : error_.code);
      json.Set("error", std::move(error.Set("message", error_.message)));
    }
    json.Set("store", is_stored_);
    for (const auto& [key, value] : asked_.view().members()) json.Set(key, value.Copy());
    return json;
  }

  const ReplyHead head_;
  const ToolHomes homes_;
  const Json asked_;
  bool is_stored_;
  uint64_t n_events_ = 0;
  ApiError error_;
};

}  // namespace

std::unique_ptr<ReplyWriter> MakeResponsesWriter(const ApiRequest& request, const ReplyHead& head) {
  return std::make_unique<ResponsesWriter>(request, head);
}

}  // namespace moestro
