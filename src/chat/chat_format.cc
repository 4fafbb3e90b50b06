// SPDX-License-Identifier: MIT
#include "chat/chat_format.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/format.h"
#include "chat/answer_grammar.h"
#include "chat/json_scan.h"
#include "chat/plain_turns.h"
#include "chat/template.h"
#include "chat/template_traits.h"

namespace moestro {
namespace {

std::string_view FormatName(CallFormat format) {
  switch (format) {
    case CallFormat::kNone:
      return "none";
    case CallFormat::kTaggedJson:
      return "tagged JSON";
    case CallFormat::kList:
      return "a list of JSON";
    case CallFormat::kNamed:
      return "names and JSON";
    case CallFormat::kBareJson:
      return "bare JSON";
    case CallFormat::kParameterTags:
      return "parameter tags";
    case CallFormat::kKeyValueTags:
      return "key and value tags";
    case CallFormat::kFenced:
      return "fenced JSON";
    case CallFormat::kChannels:
      return "channels";
  }
  return "none";
}

std::string OneLine(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text;
}

// Marks that end a turn, of which a vocabulary may know nothing.
std::vector<std::string> StopsOf(std::string_view template_text) {
  std::vector<std::string> stops;
  for (const std::string_view mark : {"<|im_end|>", "<|eot_id|>", "<|observation|>"}) {
    if (template_text.contains(mark)) stops.emplace_back(mark);
  }
  return stops;
}

std::string_view TrimEnd(std::string_view text) {
  while (!text.empty() && kBlanks.contains(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace

struct ChatFormat::Impl {
  std::optional<ChatTemplate> chat_template;
  TemplateTraits traits;
  AnswerStyle style;  // of the model's answers, before a request is known
  bool is_chatml = false;
  std::vector<std::string> stops;
  std::string description;

  void TakeTemplate(ChatTemplate parsed, std::string_view text) {
    traits = FindTraits(parsed, text);
    style = FindStyle(text);
    // Told in words of ours, a model answers in the way they say: its own if they can say it.
    const bool has_example = traits.knows_calls && (style.calls == CallFormat::kList ||
                                                    style.calls == CallFormat::kFenced);
    if (!traits.knows_tools && !has_example && style.calls != CallFormat::kChannels) {
      traits.knows_calls = false;
      traits.knows_results = false;
      const AnswerStyle plain = FindStyle({});
      style.calls = plain.calls;
      style.call_begin = plain.call_begin;
      style.call_end = plain.call_end;
    }
    chat_template = std::move(parsed);
    stops = StopsOf(text);
    description = Format("the model's template; calls of tools as {}{}", FormatName(style.calls),
                         traits.knows_tools ? "" : ", described in the system message");
  }

  void TakeNone(bool has_chatml_marks, std::string_view reason) {
    is_chatml = has_chatml_marks;
    traits.knows_system = true;
    style = FindStyle({});
    if (is_chatml) {
      stops = {"<|im_end|>"};
    } else {
      stops = {"\nuser:", "\nsystem:", "\nassistant:"};
    }
    description = Format("{} ({})", is_chatml ? "ChatML" : "lines of \"role: text\"", reason);
  }

  Result<std::string> Prompt(const ChatInput& input) const {
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
                                  .forms = traits.forms});
  }

  AnswerStyle StyleFor(const ChatInput& input, std::string_view prompt) const {
    AnswerStyle answer = style;
    const std::string_view end = TrimEnd(prompt);
    answer.begins_in_reasoning = input.add_assistant && !answer.reasoning_begin.empty() &&
                                 end.ends_with(answer.reasoning_begin);
    if (input.tools.empty() || input.tool_use == ToolUse::kNone) {
      if (answer.calls != CallFormat::kChannels) answer.calls = CallFormat::kNone;
      return answer;
    }
    for (const Tool& tool : input.tools) {
      answer.tools.push_back({.name = tool.name, .text_parameters = TextParameters(tool)});
    }
    return answer;
  }

  bool MayThink(const AnswerStyle& answer, std::string_view prompt) const {
    if (answer.calls == CallFormat::kChannels) return true;
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
    return ChatFormat(std::move(impl));
  }
  Result<ChatTemplate> parsed = ChatTemplate::Parse(model.template_text, model.bos, model.eos);
  if (parsed) {
    impl->TakeTemplate(*std::move(parsed), model.template_text);
  } else {
    impl->TakeNone(model.has_chatml_marks, Format("the model's chat template cannot be used: {}",
                                                  OneLine(parsed.error().message)));
  }
  return ChatFormat(std::move(impl));
}

Result<RenderedChat> ChatFormat::Render(const ChatInput& input, const OutputForm& form) const {
  RenderedChat chat;
  TRY(chat.prompt, impl_->Prompt(input));
  chat.style = impl_->StyleFor(input, chat.prompt);
  const bool may_think = impl_->MayThink(chat.style, chat.prompt);
  TRY(AnswerGrammar grammar, MakeAnswerGrammar(chat.style, input, form, may_think));
  chat.style.calls_are_certain = grammar.has_calls;
  chat.grammar = std::move(grammar.text);
  chat.grammar_triggers = std::move(grammar.triggers);
  chat.stops = impl_->stops;
  return chat;
}

std::string_view ChatFormat::description() const { return impl_->description; }

}  // namespace moestro
