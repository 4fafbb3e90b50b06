// SPDX-License-Identifier: MIT
#include "chat/template_values.h"

#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "jinja/json_text.h"

namespace moestro {
namespace {

using jinja::Value;

constexpr size_t kMostValues = size_t{1} << 18U;  // in a conversation's JSON; 150 bytes each

class ConversationValues {
 public:
  ConversationValues(const TemplateForms& forms, const ControlTexts& controls)
      : forms_(forms), controls_(controls) {
    if (controls_.empty()) return;
    reading_.change_text = [this](const std::string& text) { return Marked(text); };
  }

  Result<Value> Parse(std::string_view text, std::string_view what) {
    auto parsed = jinja::ReadJson(text, reading_);
    if (!parsed) {
      return Fail(Errc::kInvalidRequest, "{}: {}", what, parsed.error().message);
    }
    return parsed;
  }

  // Moves each turn's texts, so that large texts do not exist twice.
  Value Turns(std::span<ChatTurn> turns) {
    std::vector<Value> values;
    for (ChatTurn& place : turns) values.push_back(Turn(std::exchange(place, {})));
    return Value::MakeList(std::move(values));
  }

  Result<Value> Tools(std::span<const Tool> tools) {
    constexpr std::string_view kNoParameters = R"({"type": "object", "properties": {}})";
    std::vector<Value> values;
    for (const Tool& tool : tools) {
      const std::string_view sent = tool.parameters.empty() ? kNoParameters : tool.parameters;
      TRY(Value parameters, Parse(sent, Format("parameters of tool {}", tool.name)));
      const Value function = Value::MakeDict();
      function.dict().Set("name", MarkedValue(tool.name));
      function.dict().Set("description", MarkedValue(tool.description));
      function.dict().Set("parameters", std::move(parameters));
      values.push_back(Function(function));
    }
    return Value::MakeList(std::move(values));
  }

 private:
  std::string Marked(const std::string& text) const { return MarkControls(controls_, text); }
  Value MarkedValue(const std::string& text) const { return Value(Marked(text)); }
  static Value Function(const Value& function) {
    Value value = Value::MakeDict();
    value.dict().Set("type", Value("function"));
    value.dict().Set("function", function);
    return value;
  }

  Value Call(const ToolCall& call) {
    const Value function = Value::MakeDict();
    function.dict().Set("name", MarkedValue(call.name));
    function.dict().Set("arguments", MarkedValue(call.arguments));
    if (forms_.has_object_arguments) {
      const auto object = Parse(call.arguments.empty() ? "{}" : call.arguments, "arguments");
      // The arguments of a broken call stay text.
      if (object && object->is_dict()) function.dict().Set("arguments", *object);
    }
    Value value = Function(function);
    if (!call.id.empty()) value.dict().Set("id", MarkedValue(call.id));
    return value;
  }

  Value Turn(ChatTurn turn) {
    Value value = Value::MakeDict();
    jinja::Dict& members = value.dict();
    const bool says_nothing = turn.content.empty() && forms_.has_null_content;
    members.Set("role", Value(std::move(turn.role)));
    members.Set("content", says_nothing && !turn.calls.empty() ? Value::None()
                                                               : Value(std::move(turn.content)));
    if (!turn.reasoning.empty()) {
      members.Set(ThoughtsKeyName(forms_.thoughts_key), Value(std::move(turn.reasoning)));
    }
    if (!turn.call_id.empty()) members.Set("tool_call_id", Value(std::move(turn.call_id)));
    if (!turn.name.empty()) members.Set("name", Value(std::move(turn.name)));
    if (turn.calls.empty()) return value;
    std::vector<Value> calls;
    for (const ToolCall& call : turn.calls) calls.push_back(Call(call));
    members.Set("tool_calls", Value::MakeList(std::move(calls)));
    return value;
  }

  const TemplateForms& forms_;
  const ControlTexts& controls_;
  jinja::JsonReading reading_{.values_left = kMostValues};
};

}  // namespace

Result<Value> TemplateValues(SentInput input, const std::string& bos, const std::string& eos,
                             const ControlTexts& controls) {
  ConversationValues conversation(input.forms, controls);
  Value values = Value::MakeDict();
  jinja::Dict& variables = values.dict();
  // transformers gives this variable to every template, too.
  variables.Set("documents", Value::None());
  if (!input.arguments.empty()) {
    TRY(const Value arguments, conversation.Parse(input.arguments, "the template's arguments"));
    if (!arguments.is_dict()) {
      return Fail(Errc::kInvalidRequest, "the template's arguments are not an object");
    }
    for (const auto& [name, value] : arguments.dict().members()) variables.Set(name, value);
  }
  variables.Set("messages", conversation.Turns(input.turns));
  variables.Set("add_generation_prompt", Value(input.add_assistant));
  variables.Set("bos_token", Value(bos));
  variables.Set("eos_token", Value(eos));
  if (!input.tools.empty()) {
    TRY(Value tools, conversation.Tools(input.tools));
    variables.Set("tools", std::move(tools));
  } else if (input.forms.has_undefined_tools) {
    variables.Take(Value("tools"));
  } else {
    variables.Set("tools", Value::None());
  }
  return values;
}

}  // namespace moestro
