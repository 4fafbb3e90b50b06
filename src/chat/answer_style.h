// SPDX-License-Identifier: MIT
// The marks by which a model's answer tells thoughts, content and calls of tools apart.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moestro {

// How calls are written. Names and marks in capitals stand for texts.
enum class CallFormat : uint8_t {
  kNone,           // calls are not looked for
  kTaggedJson,     // BEGIN {"name": NAME, "arguments": {...}} END
  kList,           // BEGIN [{"name": NAME, "arguments": {...}}, ...] END
  kNamed,          // BEGIN NAME [ARGS] {...}
  kBareJson,       // {"name": NAME, "parameters": {...}} as the whole answer, or behind BEGIN
  kParameterTags,  // BEGIN <function=NAME><parameter=KEY> VALUE </parameter>...</function> END
  kKeyValueTags,   // BEGIN NAME <arg_key>KEY</arg_key><arg_value>VALUE</arg_value>... END
  kFenced,         // BEGIN, calls with marks of their own and perhaps a Markdown fence, END
  kChannels,       // <|channel|>commentary to=functions.NAME ...<|message|>{...}
};

// What reading a call needs to know of a tool.
struct ToolShape {
  std::string name;
  std::vector<std::string> text_parameters;  // their values are text, even where it looks like JSON
};

struct AnswerStyle {
  CallFormat calls = CallFormat::kNone;
  bool is_guess = false;  // of `calls`: the template speaks of no marks that are known
  std::string call_begin;
  std::string call_end;         // may be empty
  bool fences_calls = false;    // kFenced: with a Markdown fence
  std::string reasoning_begin;  // "<think>"; empty: the model has no thoughts
  std::string reasoning_end;
  bool begins_in_reasoning = false;  // the prompt ended with reasoning_begin
  bool begins_in_content = false;    // the prompt ended within the answer's text
  bool has_short_ids = false;        // of calls; call_ids.h
  // A grammar holds the calls, so their arguments may be passed on before their end is seen.
  bool calls_are_certain = false;
  std::vector<ToolShape> tools;
};

// The marks that the text of a chat template speaks of, for a model that may call tools. Without
// any known ones calls are tagged JSON in <tool_call>. `tools` and what the prompt decides are left
// empty.
AnswerStyle FindStyle(std::string_view template_text);

// Marks inside of a call.
inline constexpr std::string_view kArgumentsMark = "[ARGS]";
inline constexpr std::string_view kCallIdMark = "[CALL_ID]";
inline constexpr std::string_view kFunctionTag = "<function=";
inline constexpr std::string_view kFunctionEnd = "</function>";
inline constexpr std::string_view kParameterTag = "<parameter=";
inline constexpr std::string_view kParameterEnd = "</parameter>";
inline constexpr std::string_view kKeyTag = "<arg_key>";
inline constexpr std::string_view kKeyEnd = "</arg_key>";
inline constexpr std::string_view kValueTag = "<arg_value>";
inline constexpr std::string_view kValueEnd = "</arg_value>";
inline constexpr std::string_view kFencedBegin = "<｜tool▁call▁begin｜>";
inline constexpr std::string_view kFencedSeparator = "<｜tool▁sep｜>";
inline constexpr std::string_view kFencedEnd = "<｜tool▁call▁end｜>";
inline constexpr std::string_view kChannelMark = "<|channel|>";
inline constexpr std::string_view kStartMark = "<|start|>";
inline constexpr std::string_view kMessageMark = "<|message|>";
inline constexpr std::string_view kEndMark = "<|end|>";
inline constexpr std::string_view kCallMark = "<|call|>";
inline constexpr std::string_view kReturnMark = "<|return|>";
inline constexpr std::string_view kConstrainMark = "<|constrain|>";
inline constexpr std::string_view kRecipient = "to=functions.";

}  // namespace moestro
