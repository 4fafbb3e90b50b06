// SPDX-License-Identifier: MIT
#include "chat/template_process.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/system_limits.h"
#include "chat/template_message.h"
#include "jinja/json_text.h"
#include "jinja/template.h"
#include "sandbox/trial.h"

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

namespace {

constexpr size_t kTextPart = size_t{64} << 10U;
constexpr uint64_t kParseMemory = kLargeRenderMemory + kSmallRenderMemory;
constexpr int kOutOfMemory = 3;  // an exit code

std::string MessageOf(RenderMark mark, std::string_view words) {
  std::string message(1, static_cast<char>(mark));
  message += words;
  return message;
}

// Sends the parts of a text as messages. Ends the process when a message cannot be sent.
class TextSender {
 public:
  explicit TextSender(MessageSocket& socket) : socket_(socket) { part_.reserve(kTextPart); }
  void Add(std::string_view text) {
    while (!text.empty()) {
      const size_t fits = std::min(text.size(), kTextPart - part_.size());
      part_ += text.substr(0, fits);
      text.remove_prefix(fits);
      if (part_.size() == kTextPart) Flush();
    }
  }
  void Flush() {
    if (part_.empty()) return;
    if (!socket_.Write(MessageOf(RenderMark::kText, part_), std::nullopt)) _exit(EXIT_FAILURE);
    part_.clear();
  }

 private:
  MessageSocket& socket_;
  std::string part_;
};

// A template that is ready to be rendered.
struct ParsedTemplate {
  jinja::Template program;
  TemplateText given;
};

Result<ParsedTemplate> ParseGiven(TemplateText given) {
  TRY(jinja::Template program, jinja::Template::Parse(given.text));
  return ParsedTemplate{.program = std::move(program), .given = std::move(given)};
}

Status RenderTo(TextSender& out, const ParsedTemplate& parsed, SentInput input) {
  TRY(const jinja::Value variables,
      TemplateValues(std::move(input), parsed.given.bos, parsed.given.eos, parsed.given.controls));
  const Status rendered =
      parsed.program.Render(variables, [&out](std::string_view text) { out.Add(text); });
  if (rendered) return {};
  const Error& error = rendered.error();
  const bool refuses = error.code == Errc::kInvalidRequest;
  return Fail(error.code, "the model's chat template {}: {}",
              refuses ? "refuses the conversation" : "fails", error.message);
}

void SendError(MessageSocket& socket, const Error& error) {
  const std::string words = static_cast<char>(error.code) + error.message;
  socket.Write(MessageOf(RenderMark::kError, words), std::nullopt);
}

std::string ProcessorTime(double seconds) {
  std::string bytes;
  AppendNumber(bytes, static_cast<uint32_t>(std::lround(seconds * 1000)));
  return bytes;
}

double ProcessorSecondsNow() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// The process that renders.
class Renderer {
 public:
  Renderer(MessageSocket answers, MessageSocket& owner, const ParsedTemplate& parsed)
      : answers_(std::move(answers)), owner_(owner), parsed_(parsed) {}

  // Renders until the owner closes its side, or until templates have kept too much memory: a list
  // that holds itself is never freed.
  void Run(uint64_t memory) {
    LimitChild(memory);
    // An exception would become an error message.
    std::set_new_handler([] { _exit(kOutOfMemory); });
    const uint64_t most_kept = WritableBytes() + memory / 8;
    while (WritableBytes() < most_kept) {
      const auto request = owner_.Read(std::nullopt);
      if (!request || request->size() != sizeof(uint32_t)) return;
      std::string_view view = *request;
      ProcessorLimit limit(std::chrono::milliseconds(TakeNumber(view)));
      limit.Resume();
      RenderOne();
      limit.Pause();
      ReturnFreedMemory();
      Write(RenderMark::kDone, ProcessorTime(ProcessorSecondsNow()));
    }
  }

 private:
  void Write(RenderMark mark, std::string_view words) {
    if (!answers_.Write(MessageOf(mark, words), std::nullopt)) _exit(EXIT_FAILURE);
  }
  void RenderOne() {
    Write(RenderMark::kBegins, "");
    auto input = ReadInput([this] { return owner_.Read(std::nullopt); });
    if (!input) _exit(EXIT_FAILURE);
    TextSender text(answers_);
    const Status rendered = RenderTo(text, parsed_, *std::move(input));
    if (!rendered) return SendError(answers_, rendered.error());
    text.Flush();
  }

  MessageSocket answers_;
  MessageSocket& owner_;
  const ParsedTemplate& parsed_;
};

// Watches the rendering child for the owner.
void ServeOwner(std::string_view request, MessageSocket owner,
                const Result<ParsedTemplate>& parsed) {
  RelayEnd end{.outcome = Trial::Outcome::kPassed};
  if (!parsed) {
    SendError(owner, parsed.error());
  } else if (request != kAskParsed) {
    const uint64_t memory = request == kAskLarge ? kLargeRenderMemory : kSmallRenderMemory;
    end = RelayChild(owner, [&](MessageSocket answers) {
      Renderer(std::move(answers), owner, *parsed).Run(memory);
    });
  }
  std::string words(1, static_cast<char>(end.outcome));
  words += end.exit_code == kOutOfMemory ? '1' : '0';
  words += ProcessorTime(end.processor_seconds);
  owner.Write(MessageOf(RenderMark::kEnd, words), std::nullopt);
}

}  // namespace

ChildStarter::Work TemplateWork(TemplateText given) {
  // Shared by the helper and the children that it forks.
  auto parsed = std::make_shared<std::optional<Result<ParsedTemplate>>>();
  const auto prepare = [parsed, given = std::move(given)] {
    ReturnLargeBlocksAtOnce();
    LimitChild(kParseMemory);
    ProcessorLimit limit(kLongestParse);
    limit.Resume();
    parsed->emplace(ParseGiven(given));
    limit.Pause();
  };
  return {.prepare = prepare,
          .serve =
              [parsed](std::string_view request, MessageSocket answers) {
                ServeOwner(request, std::move(answers), **parsed);
              },
          .most_children = 4,  // one for each size, and one of each that is being ended
          .what = "the chat template's renderings",
          .purpose = "render the chat template",
          .what_fails = "conversations"};
}

}  // namespace moestro
