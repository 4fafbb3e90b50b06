// SPDX-License-Identifier: MIT
#include "chat/chat_format.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "base/text.h"
#include "chat/answer_grammar.h"
#include "chat/json_scan.h"
#include "chat/plain_turns.h"
#include "chat/template.h"
#include "chat/template_traits.h"

namespace moestro {

std::string WithChannelEffort(std::string_view arguments) {
  constexpr std::string_view kEffort = "reasoning_effort";
  auto parsed = Json::Parse(arguments);
  if (!parsed || parsed->view().kind() != JsonKind::kObject) return std::string(arguments);
  const auto given = parsed->Find(kEffort);
  const auto thinks = parsed->Find("enable_thinking");
  const bool is_off = !given && thinks && thinks->boolean() == false;
  const std::string effort = given ? given->text().value_or("") : "";
  std::string_view known;
  if (is_off || effort == "none" || effort == "minimal") known = "low";
  if (effort == "xhigh" || effort == "max") known = "high";
  if (known.empty()) return std::string(arguments);
  parsed->Set(kEffort, known);
  return parsed->Dump();
}

namespace {

// A character for private use, with which no client's message begins.
constexpr const char* kOtherMessage = "\xEE\x80\x80";

bool IsInstruction(const ChatTurn& turn) {
  return turn.role == "system" || turn.role == "developer";
}

}  // namespace

std::vector<ChatInput> LikelyBeginnings(const ChatInput& chat) {
  ChatInput other{.turns = {},
                  .tools = chat.tools,
                  .tool_use = ToolUse::kNone,  // tools stay in the prompt
                  .named_tool = {},
                  .template_arguments = chat.template_arguments,
                  .add_assistant = false};
  const auto messages = std::ranges::find_if_not(chat.turns, IsInstruction);
  other.turns.assign(chat.turns.begin(), messages);
  ChatTurn message;
  message.role = "user";
  message.content = kOtherMessage;
  other.turns.push_back(std::move(message));
  std::vector<ChatInput> beginnings = {other};
  if (chat.continues_last) return beginnings;
  other.turns = chat.turns;
  beginnings.push_back(std::move(other));
  return beginnings;
}

namespace {

std::string OneLine(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text;
}

// Marks that end a turn and may be missing in a vocabulary.
std::vector<std::string> StopsOf(std::string_view template_text) {
  std::vector<std::string> stops;
  for (const std::string_view mark :
       {"<|im_end|>", "<|eot_id|>", "<|observation|>", "<|role_end|>", "<|endofturn|>", "[e~["}) {
    if (template_text.contains(mark)) stops.emplace_back(mark);
  }
  return stops;
}

std::string_view TrimEnd(std::string_view text) {
  while (!text.empty() && kBlanks.contains(text.back())) text.remove_suffix(1);
  return text;
}

std::string_view Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  return begin == std::string_view::npos ? std::string_view() : TrimEnd(text.substr(begin));
}

}  // namespace

struct ChatFormat::Impl {
  std::optional<ChatTemplate> chat_template;
  TemplateTraits traits;
  AnswerStyle style;  // of the model's answers, before a request changes it
  bool is_chatml = false;
  std::vector<std::string> stops;
  ControlTexts controls;       // texts of tokens that no client may write
  ControlTexts not_own_marks;  // `controls` without those in the model's own answers
  std::string description;
  std::vector<std::string> warnings;

  bool has_channels() const { return style.calls.shape == CallShape::kChannels; }

  void SetControls(const std::vector<std::string>& texts) {
    controls = ControlTexts(texts);
    std::vector<std::string> others = texts;
    std::erase_if(others, [this](const std::string& text) { return IsOwnMark(text); });
    not_own_marks = ControlTexts(others);
  }

  bool IsOwnMark(std::string_view text) const {
    constexpr std::string_view kChannelMarks[] = {kChannelMark, kStartMark, kMessageMark,
                                                  kEndMark,     kCallMark,  kConstrainMark};
    if (has_channels()) return std::ranges::contains(kChannelMarks, text);
    // The first part of a mark in two parts is a token of its own.
    const bool begins_thoughts = text.size() > 1 && style.reasoning_begin.starts_with(text);
    return begins_thoughts || text == style.reasoning_end || text == style.content_begin ||
           text == style.content_end || text == style.calls.begin || text == style.calls.end ||
           IsOfMark(style.calls, text);
  }

  // Marks control texts, but leaves an assistant's own marks: clients send them back, and templates
  // search for them.
  void Mark(ChatInput& input) const {
    for (ChatTurn& turn : input.turns) {
      const ControlTexts& marked = turn.role == "assistant" ? not_own_marks : controls;
      turn.content = MarkControls(marked, turn.content);
      turn.reasoning = MarkControls(marked, turn.reasoning);
      turn.name = MarkControls(controls, turn.name);
      for (ToolCall& call : turn.calls) call.name = MarkControls(controls, call.name);
    }
    // Described in words of ours, tools do not come through the template.
    if (traits.knows_tools) return;
    for (Tool& tool : input.tools) {
      tool.name = MarkControls(controls, tool.name);
      tool.description = MarkControls(controls, tool.description);
      tool.parameters = MarkControls(controls, tool.parameters);
    }
  }

  // Uses the model's own template. Returns the reason if that is impossible; empty: the template is
  // used.
  std::string TakeOwn(const ChatModel& model) {
    Result<ChatTemplate> parsed = ChatTemplate::Parse(model.template_text, model.bos, model.eos,
                                                      ControlTexts(model.control_texts));
    if (!parsed) {
      return Format("the model's chat template cannot be used: {}",
                    OneLine(parsed.error().message));
    }
    TemplateTraits found = FindTraits(*parsed, model.template_text);
    if (!found.plain_failure.empty()) {
      return Format("{} (for a conversation of one question)", OneLine(found.plain_failure));
    }
    TakeTemplate(*std::move(parsed), std::move(found), model.template_text);
    return {};
  }

  // Uses a known template with the marks of the model's own, which is unusable for the reason
  // `failure`. The model's calls and thoughts stay those of its own template.
  void TakeInPlace(const ChatModel& model, const std::string& failure) {
    std::string_view name;
    if (const auto known = TemplateOfMarks(model.template_text)) {
      Result<ChatTemplate> parsed =
          ChatTemplate::Parse(known->text, model.bos, model.eos, ControlTexts(model.control_texts));
      if (parsed) {
        name = known->name;
        TemplateTraits found = FindTraits(*parsed, known->text);
        TakeTemplate(*std::move(parsed), std::move(found), model.template_text);
        description = Format("the known template \"{}\"; {}", name, failure);
      }
    }
    if (name.empty()) {
      TakeNone(model.has_chatml_marks, failure);
      name = is_chatml ? "ChatML" : "a plain form";
    }
    warnings.push_back(Format("{}; {} takes its place, and answers may be worse", failure, name));
  }

  // `text`: the template that the model came with.
  void TakeTemplate(ChatTemplate parsed, TemplateTraits found, std::string_view text) {
    traits = std::move(found);
    style = FindStyle(text);
    // Where our words describe the tools, calls are in the template's own style if an example of
    // that style can be written, else tagged JSON.
    const bool has_example = traits.knows_calls && HasExample(style.calls);
    if (!traits.knows_tools && !has_example && !has_channels()) {
      traits.knows_calls = false;
      traits.knows_results = false;
      style.calls = PlainCallStyle();
    }
    chat_template = std::move(parsed);
    stops = StopsOf(text);
    if (!style.turn_end.empty()) stops.push_back(style.turn_end);
    description = Format("the model's template; calls of tools as {}{}", style.calls.title,
                         traits.knows_tools ? "" : ", described in the system message");
    // Otherwise the template describes the tools, and the model writes calls in the template's
    // style.
    if (traits.knows_tools && style.is_guess) {
      warnings.emplace_back(
          "the model's chat template has tools in a form that is not known here: calls of tools "
          "that are not forced may come as text");
    }
  }

  void TakeNone(bool has_chatml_marks, std::string_view reason) {
    is_chatml = has_chatml_marks;
    traits.knows_system = true;
    traits.knows_systems_in_a_row = true;
    traits.knows_late_system = true;
    traits.knows_users_in_a_row = true;
    traits.knows_assistants_in_a_row = true;
    style = FindStyle({});
    if (is_chatml) {
      stops = {"<|im_end|>"};
    } else {
      stops = {"\nuser:", "\nsystem:", "\nassistant:"};
    }
    description = Format("{} ({})", is_chatml ? "ChatML" : "lines of \"role: text\"", reason);
  }

  // A last turn that the answer goes on with is left to Continue().
  Result<std::string> Prompt(const ChatInput& input, const WorkLimit& limit) const {
    if (input.continues_last && !input.turns.empty()) {
      ChatInput before = input;
      before.turns.pop_back();
      before.continues_last = false;
      before.add_assistant = true;
      return Prompt(before, limit);
    }
    const std::vector<ChatTurn> turns = PlainTurns(input, traits, style);
    if (!chat_template) {
      return is_chatml ? RenderChatMl(turns, input.add_assistant)
                       : RenderLines(turns, input.add_assistant);
    }
    const bool describes = traits.knows_tools;
    return chat_template->Render({.turns = turns,
                                  .tools = describes ? input.tools : std::span<const Tool>(),
                                  .arguments = input.template_arguments,
                                  .add_assistant = input.add_assistant,
                                  .forms = traits.forms},
                                 limit);
  }

  Result<AnswerStyle> StyleFor(const ChatInput& input, std::string_view prompt,
                               const WorkLimit& limit) const {
    AnswerStyle answer = style;
    answer.has_short_ids = traits.wants_short_ids;
    const std::string_view end = TrimEnd(prompt);
    answer.begins_in_reasoning = input.add_assistant && !answer.reasoning_begin.empty() &&
                                 end.ends_with(answer.reasoning_begin);
    answer.begins_marked =
        input.add_assistant && !answer.content_begin.empty() && end.ends_with(answer.content_begin);
    if (input.tools.empty() || input.tool_use == ToolUse::kNone) {
      if (!has_channels()) answer.calls = {};
      return answer;
    }
    const std::set<std::string_view> allowed(input.allowed_tools.begin(),
                                             input.allowed_tools.end());
    for (const Tool& tool : input.tools) {
      TRY_STATUS(limit.Spend(tool.name.size() + tool.parameters.size()));
      if (!allowed.empty() && !allowed.contains(tool.name)) continue;
      answer.tools.push_back(ShapeOfTool(tool, limit));
    }
    return answer;
  }

  // Renders the prompt through the last turn, whose text gets a mark at its end, and cuts it off at
  // the mark. nullopt: the template fails, or writes the text in another way. A template may strip
  // a text, so the mark is a character and a blank.
  Result<std::optional<std::string>> PromptThroughTurn(const ChatInput& input,
                                                       const WorkLimit& limit) const {
    constexpr std::string_view kMark = "\uFDD1";
    const std::string content = input.turns.back().content;
    if (!chat_template || content.empty() || content.contains(kMark)) return std::nullopt;
    ChatInput marked = input;
    marked.continues_last = false;
    marked.add_assistant = false;
    marked.turns.back().content += Format("{} ", kMark);
    auto prompt = Prompt(marked, limit);
    TRY_STATUS(limit.Look());
    if (!prompt) return std::nullopt;
    const size_t end = prompt->rfind(kMark);
    if (end == std::string::npos) return std::nullopt;
    const bool is_stripped = !prompt->substr(end + kMark.size()).starts_with(' ');
    prompt->resize(end);
    if (is_stripped) prompt->resize(TrimEnd(*prompt).size());
    if (!TrimEnd(*prompt).ends_with(Trim(content))) return std::nullopt;
    // The prompt must hold the thoughts of the answer that goes on.
    if (!prompt->contains(Trim(input.turns.back().reasoning))) return std::nullopt;
    return *std::move(prompt);
  }

  // Appends the assistant's turn to the prompt; the answer begins there.
  void Continue(const ChatTurn& turn, std::string& prompt, AnswerStyle& answer) const {
    const bool can_think = has_channels() || !answer.reasoning_end.empty();
    const bool is_thinking = can_think && turn.content.empty();
    if (has_channels()) {
      if (!turn.reasoning.empty()) {
        prompt += Format("{}analysis{}{}", kChannelMark, kMessageMark, turn.reasoning);
        if (!is_thinking) prompt += Format("{}{}assistant", kEndMark, kStartMark);
      }
      if (!is_thinking) prompt += Format("{}final{}", kChannelMark, kMessageMark);
    } else if (!answer.reasoning_end.empty()) {
      const bool opens = !answer.begins_in_reasoning && !turn.reasoning.empty();
      if (opens) prompt += answer.reasoning_begin + "\n";
      prompt += turn.reasoning;
      const bool closes = !is_thinking && (opens || answer.begins_in_reasoning);
      if (closes) prompt += Format("\n{}\n\n", answer.reasoning_end);
    }
    prompt += turn.content;
    answer.begins_in_reasoning = is_thinking;
    answer.begins_in_content = !is_thinking;
  }

  bool MayThink(const AnswerStyle& answer, std::string_view prompt) const {
    if (answer.begins_in_content) return false;
    if (has_channels()) return true;
    return !answer.reasoning_end.empty() && !TrimEnd(prompt).ends_with(answer.reasoning_end);
  }
};

ChatFormat::ChatFormat(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatFormat::ChatFormat(ChatFormat&&) noexcept = default;
ChatFormat& ChatFormat::operator=(ChatFormat&&) noexcept = default;
ChatFormat::~ChatFormat() = default;

ChatFormat ChatFormat::Make(const ChatModel& model) {
  auto impl = std::make_unique<Impl>();
  if (model.template_text.empty()) {
    impl->TakeNone(model.has_chatml_marks, "the model has no chat template");
    impl->SetControls(model.control_texts);
    return ChatFormat(std::move(impl));
  }
  if (const std::string failure = impl->TakeOwn(model); !failure.empty()) {
    impl->TakeInPlace(model, failure);
  }
  impl->SetControls(model.control_texts);
  return ChatFormat(std::move(impl));
}

Result<RenderedChat> ChatFormat::Render(const ChatInput& input, const OutputForm& form,
                                        const WorkLimit& limit) const {
  RenderedChat chat;
  ChatInput marked = input;
  impl_->Mark(marked);
  if (impl_->has_channels()) {
    marked.template_arguments = WithChannelEffort(marked.template_arguments);
  }
  const bool continues = input.continues_last && !input.turns.empty();
  std::optional<std::string> through;
  if (continues) {
    TRY(through, impl_->PromptThroughTurn(marked, limit));
  }
  if (through) {
    chat.prompt = *std::move(through);
  } else {
    TRY(chat.prompt, impl_->Prompt(marked, limit));
  }
  TRY(chat.style, impl_->StyleFor(input, chat.prompt, limit));
  if (through) {
    chat.style.begins_in_reasoning = false;
    chat.style.begins_in_content = true;
  } else if (continues) {
    impl_->Continue(marked.turns.back(), chat.prompt, chat.style);
  }
  UnmarkedText clean = Unmark(impl_->controls, chat.prompt);
  chat.prompt = std::move(clean.text);
  chat.plain = std::move(clean.plain);
  const bool may_think = impl_->MayThink(chat.style, chat.prompt);
  TRY(AnswerGrammar grammar, MakeAnswerGrammar(chat.style, input, form, may_think, limit));
  chat.style.calls_are_certain = grammar.has_calls;
  chat.grammar = std::move(grammar.text);
  chat.grammar_triggers = std::move(grammar.triggers);
  chat.grammar_sleeps_in = std::move(grammar.sleeps_in);
  chat.left_out = std::move(grammar.left_out);
  chat.stops = impl_->stops;
  return chat;
}

const std::vector<std::string>& ChatFormat::warnings() const { return impl_->warnings; }

bool ChatFormat::has_thoughts() const {
  return !impl_->style.reasoning_begin.empty() || impl_->has_channels();
}

ChildStarter* ChatFormat::starter() const {
  return impl_->chat_template ? &impl_->chat_template->starter() : nullptr;
}

std::string_view ChatFormat::description() const { return impl_->description; }

}  // namespace moestro
