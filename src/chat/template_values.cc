// SPDX-License-Identifier: MIT
#include "chat/template_values.h"

#include <cstddef>
#include <map>
#include <memory>
#include <minja/minja.hpp>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"

namespace moestro {
namespace {

using JsonValue = nlohmann::ordered_json;
using minja::Value;

constexpr size_t kMostValues = size_t{1} << 18U;  // of a conversation's JSON; 150 bytes each
constexpr size_t kMostKeys = 2048;                // of an object

// Makes the library's values of a JSON text. Its own way takes the square of an object's keys, and
// some of its functions do, so keys are bounded. Depth is bounded for its recursion.
class ValueBuilder final : public nlohmann::json_sax<JsonValue> {
 public:
  ValueBuilder(size_t most_values, const ControlTexts& controls)
      : values_left_(most_values), controls_(controls) {}

  bool null() override { return Add(Value()); }
  bool boolean(bool value) override { return Add(Value(JsonValue(value))); }
  bool number_integer(number_integer_t value) override { return Add(Value(JsonValue(value))); }
  bool number_unsigned(number_unsigned_t value) override { return Add(Value(JsonValue(value))); }
  bool number_float(number_float_t value, const string_t&) override {
    return Add(Value(JsonValue(value)));
  }
  bool string(string_t& value) override {
    Mark(value);
    return Add(Value(JsonValue(std::move(value))));
  }
  bool binary(binary_t&) override { return false; }  // JSON text has none
  bool start_array(size_t) override { return Open(nullptr); }
  bool start_object(size_t) override { return Open(std::make_shared<Members>()); }
  bool end_array() override { return Close(); }
  bool end_object() override { return Close(); }
  bool key(string_t& name) override {
    Mark(name);
    Level& level = open_.back();
    const auto [place, is_new] = level.places.try_emplace(name, level.members->size());
    level.place = place->second;
    if (is_new) level.members->emplace_back(JsonValue(std::move(name)), Value());
    if (level.members->size() > kMostKeys) {
      return Refuse(Format("an object with more than {} keys", kMostKeys));
    }
    return true;
  }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return Refuse(Format("not JSON: mistake at byte {}", position));
  }

  Value& root() { return root_; }
  size_t values_left() const { return values_left_; }
  const std::string& error() const { return error_; }

 private:
  using Members = nlohmann::ordered_map<JsonValue, Value>;
  struct Level {
    Value array;  // unless it is an object
    std::shared_ptr<Members> members;
    std::map<std::string, size_t> places;  // of members by their keys
    size_t place = 0;                      // of the value that comes next
  };

  void Mark(std::string& text) const {
    if (!controls_.empty()) text = MarkControls(controls_, text);
  }
  bool Refuse(std::string why) {
    error_ = std::move(why);
    return false;
  }
  bool Open(std::shared_ptr<Members> members) {
    if (open_.size() == Json::kMaxDepth) {
      return Refuse(Format("JSON nested deeper than {} levels", Json::kMaxDepth));
    }
    Value array = members ? Value() : Value::array();
    open_.push_back({.array = std::move(array), .members = std::move(members), .places = {}});
    return true;
  }
  bool Close() {
    Level level = std::move(open_.back());
    open_.pop_back();
    return Add(level.members ? Value::object(level.members) : std::move(level.array));
  }
  bool Add(Value value) {
    if (values_left_ == 0) return Refuse(Format("more than {} values of JSON", kMostValues));
    --values_left_;
    if (open_.empty())
      root_ = std::move(value);
    else if (Level& level = open_.back(); level.members)
      (level.members->begin() + static_cast<std::ptrdiff_t>(level.place))->second =
          std::move(value);
    else
      level.array.push_back(value);
    return true;
  }

  size_t values_left_;
  const ControlTexts& controls_;  // marked in all texts
  std::vector<Level> open_;
  Value root_;
  std::string error_;
};

// What a template sees of a conversation.
class Conversation {
 public:
  Conversation(const TemplateForms& forms, const ControlTexts& controls)
      : forms_(forms), controls_(controls) {}

  Result<Value> Parse(std::string_view text, std::string_view what) {
    // The library takes it for the end and reads no further.
    if (const size_t zero = text.find('\0'); zero != std::string_view::npos) {
      return Fail(Errc::kInvalidRequest, "{}: not JSON: mistake at byte {}", what, zero + 1);
    }
    ValueBuilder builder(values_left_, controls_);
    if (!JsonValue::sax_parse(text, &builder)) {
      return Fail(Errc::kInvalidRequest, "{}: {}", what, builder.error());
    }
    values_left_ = builder.values_left();
    return std::move(builder.root());
  }

  // Takes each out of its place, so that large texts are not there twice.
  Result<Value> Turns(std::span<ChatTurn> turns) {
    Value values = Value::array();
    for (ChatTurn& place : turns) {
      const ChatTurn turn = std::exchange(place, {});
      TRY(const Value value, Turn(turn));
      values.push_back(value);
    }
    return values;
  }

  Result<Value> Tools(std::span<const Tool> tools) {
    constexpr std::string_view kNoParameters = R"({"type": "object", "properties": {}})";
    Value values = Value::array();
    for (const Tool& tool : tools) {
      const std::string_view sent = tool.parameters.empty() ? kNoParameters : tool.parameters;
      TRY(Value parameters, Parse(sent, Format("parameters of tool {}", tool.name)));
      if (forms_.has_no_empty_properties) DropEmptyProperties(parameters);
      Value function = Value::object();
      function.set("name", Marked(tool.name));
      function.set("description", Marked(tool.description));
      function.set("parameters", parameters);
      values.push_back(Function(function));
    }
    return values;
  }

 private:
  std::string Marked(const std::string& text) const { return MarkControls(controls_, text); }
  static void DropEmptyProperties(Value& parameters) {
    constexpr const char* kKey = "properties";
    if (!parameters.is_object() || !parameters.contains(kKey)) return;
    const Value properties = parameters.get(kKey);
    if (properties.is_object() && properties.size() == 0) parameters.erase(kKey);
  }
  static Value Function(const Value& function) {
    Value value = Value::object();
    value.set("type", "function");
    value.set("function", function);
    return value;
  }

  Result<Value> Call(const ToolCall& call) {
    Value function = Value::object();
    function.set("name", Marked(call.name));
    function.set("arguments", Marked(call.arguments));
    if (forms_.has_object_arguments) {
      const auto object = Parse(call.arguments.empty() ? "{}" : call.arguments, "arguments");
      // What a client kept of a broken call stays text.
      if (object && object->is_object()) function.set("arguments", *object);
    }
    Value value = Function(function);
    if (!call.id.empty()) value.set("id", Marked(call.id));
    return value;
  }

  Result<Value> Turn(const ChatTurn& turn) {
    Value value = Value::object();
    value.set("role", turn.role);
    value.set("content", turn.content);
    if (!turn.reasoning.empty()) {
      value.set(forms_.has_thinking_key ? "thinking" : "reasoning_content", turn.reasoning);
    }
    if (!turn.call_id.empty()) value.set("tool_call_id", turn.call_id);
    if (!turn.name.empty()) value.set("name", turn.name);
    if (turn.calls.empty()) return value;
    if (turn.content.empty() && forms_.has_null_content) value.set("content", Value());
    Value calls = Value::array();
    for (const ToolCall& call : turn.calls) {
      TRY(const Value one, Call(call));
      calls.push_back(one);
    }
    value.set("tool_calls", calls);
    return value;
  }

  const TemplateForms& forms_;
  const ControlTexts& controls_;
  size_t values_left_ = kMostValues;
};

}  // namespace

Result<minja::Value> TemplateValues(SentInput input, const std::string& bos, const std::string& eos,
                                    const ControlTexts& controls) {
  Conversation conversation(input.forms, controls);
  Value values = Value::object();
  if (!input.arguments.empty()) {
    TRY(values, conversation.Parse(input.arguments, "the template's arguments"));
    if (!values.is_object()) {
      return Fail(Errc::kInvalidRequest, "the template's arguments are not an object");
    }
  }
  TRY(const Value messages, conversation.Turns(input.turns));
  values.set("messages", messages);
  values.set("add_generation_prompt", Value(input.add_assistant));
  values.set("bos_token", bos);
  values.set("eos_token", eos);
  if (values.contains("tools")) values.erase("tools");
  if (input.tools.empty()) return values;
  TRY(const Value tools, conversation.Tools(input.tools));
  values.set("tools", tools);
  return values;
}

}  // namespace moestro
