// SPDX-License-Identifier: MIT
// For tests: styles of answers, and a parser's deltas as one text.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "chat/answer_parser.h"

namespace moestro {

// Deltas as one text: thoughts in (), calls as name[arguments], content as it is.
inline std::string Describe(const std::vector<ChatDelta>& deltas) {
  std::string text;
  auto kind = ChatDelta::Kind::kContent;
  uint32_t call = 0;
  const auto close = [&] {
    if (kind == ChatDelta::Kind::kReasoning) text += ")";
    if (kind == ChatDelta::Kind::kCallBegin || kind == ChatDelta::Kind::kCallArguments) text += "]";
  };
  for (const ChatDelta& delta : deltas) {
    const bool goes_on = delta.kind == kind || (delta.kind == ChatDelta::Kind::kCallArguments &&
                                                kind == ChatDelta::Kind::kCallBegin);
    if (!goes_on || delta.kind == ChatDelta::Kind::kCallBegin) {
      close();
      if (delta.kind == ChatDelta::Kind::kReasoning) text += "(";
      if (delta.kind == ChatDelta::Kind::kCallBegin) {
        EXPECT_EQ(delta.call, call);
        text += delta.name + "[";
        ++call;
      }
    }
    text += delta.text;
    kind = delta.kind;
  }
  close();
  return text;
}

inline std::vector<ChatDelta> Parse(const AnswerStyle& style,
                                    const std::vector<std::string_view>& parts,
                                    AnswerEnd end = AnswerEnd::kWhole) {
  AnswerParser parser(style, 7);
  std::vector<ChatDelta> all;
  const auto add = [&all](std::vector<ChatDelta> deltas) {
    for (ChatDelta& delta : deltas) all.push_back(std::move(delta));
  };
  for (const std::string_view part : parts) add(parser.Push(part));
  add(parser.Finish(end));
  return all;
}

inline std::string Read(const AnswerStyle& style, std::string_view text) {
  return Describe(Parse(style, {text}));
}

inline AnswerStyle Style(const CallStyle& calls) {
  AnswerStyle style;
  style.calls = calls;
  style.reasoning_begin = "<think>";
  style.reasoning_end = "</think>";
  style.tools = {{.name = "add", .text_parameters = {"note"}},
                 {.name = "look", .text_parameters = {"place"}}};
  return style;
}
// The style of a template with these marks.
inline AnswerStyle StyleOf(std::string_view marks) {
  return Style(FindCallStyle(marks).value_or(CallStyle()));
}

inline AnswerStyle Tagged() { return StyleOf("<tool_call>"); }
inline AnswerStyle List() { return StyleOf("[TOOL_CALLS]"); }
inline AnswerStyle Named() { return StyleOf("[TOOL_CALLS][ARGS]"); }
inline AnswerStyle Bare() { return StyleOf("<|python_tag|>"); }
inline AnswerStyle Parameters() { return StyleOf("<function=<parameter="); }
inline AnswerStyle KeyValues() { return StyleOf("<arg_key><arg_value>"); }
inline AnswerStyle Fenced() { return StyleOf("<｜tool▁calls▁begin｜>"); }
inline AnswerStyle JoinedKeyValues() { return StyleOf("</arg_key><arg_value>"); }
inline AnswerStyle Invokes() { return StyleOf("<minimax:tool_call><invoke name=\""); }
// Styles of Kimi K2 and K3, DeepSeek V3.2, MiniMax-M3, LFM2, Cohere's, Solar Open and Hy 3.
inline AnswerStyle Numbered() { return StyleOf("<|tool_calls_section_begin|>"); }
inline AnswerStyle Separated() { return StyleOf("<|open|><|close|>"); }
inline AnswerStyle Dsml() { return StyleOf("'｜DSML｜' 'function_calls>'"); }
inline AnswerStyle Nested() { return StyleOf("']<]minimax[>[' '<invoke name=\"'"); }
inline AnswerStyle Python() { return StyleOf("List of tools: ["); }
inline AnswerStyle Actions() { return StyleOf("<|START_ACTION|>[{\"tool_name\""); }
inline AnswerStyle WithIds() { return StyleOf("<|tool_call:begin|><|tool_call:name|>"); }
inline AnswerStyle Suffixed() { return StyleOf("':opensource' '<tool_calls{}>'.format"); }
inline AnswerStyle Piped() { return StyleOf("<|tool_call|>"); }
inline AnswerStyle LastJson() { return StyleOf("<|function_call|>"); }
// The style that FindStyle() returns, with these tools.
inline AnswerStyle Told(std::string_view marks) {
  AnswerStyle style = FindStyle(marks);
  style.tools = Tagged().tools;
  return style;
}
inline AnswerStyle Turns() {
  return Told(
      "<|begin|>assistant<|think|> <|begin|>assistant<|content|> <|tool_call:begin|> "
      "<|tool_call:name|>");
}
inline AnswerStyle Sections() { return Told("<|open|> <|close|>"); }
inline AnswerStyle MarkedStrings() {
  AnswerStyle style = StyleOf("<|tool_call>call:");
  style.reasoning_begin = "<|channel>thought";
  style.reasoning_end = "<channel|>";
  return style;
}
inline AnswerStyle Marked(AnswerStyle style, std::string_view begin, std::string_view end) {
  style.content_begin = begin;
  style.content_end = end;
  return style;
}
// Styles of ERNIE 4.5 and of Hunyuan.
inline AnswerStyle Responses() { return Marked(Tagged(), "<response>", "</response>"); }
inline AnswerStyle Answers() { return Marked(StyleOf("<tool_calls>["), "<answer>", "</answer>"); }
inline AnswerStyle Channels() {
  AnswerStyle style = StyleOf("<|channel|><|message|>");
  style.reasoning_begin.clear();
  style.reasoning_end.clear();
  return style;
}
inline AnswerStyle Thinking(AnswerStyle style) {
  style.begins_in_reasoning = true;
  return style;
}

struct Example {
  const char* name;
  AnswerStyle style;
  std::string text;
  std::string expected;
};

}  // namespace moestro
