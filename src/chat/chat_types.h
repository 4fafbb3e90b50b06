// SPDX-License-Identifier: MIT
// A conversation as values, with tools: the readers of src/api make it, the templates and parsers
// of src/chat use it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moestro {

struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON text of an object
};

struct ChatTurn {
  std::string role;       // "system", "developer", "user", "assistant", "tool"
  std::string content;    // may be empty
  std::string reasoning;  // an assistant's thoughts, as written; empty: none
  std::vector<ToolCall> calls;
  std::string call_id;  // in a tool's answer: the call's id
  std::string name;     // in a tool's answer: the tool; empty: not given
};

struct Tool {
  std::string name;
  std::string description;
  std::string parameters;  // JSON text of a schema, as sent; empty: none
  bool is_strict = false;  // a schema that no grammar can express is refused
};

enum class ToolUse : uint8_t {
  kAuto,      // the model decides
  kNone,      // the model writes no call
  kRequired,  // the answer begins with a call
  kNamed,     // the answer calls ChatInput::named_tool exactly once
};

struct ChatInput {
  std::vector<ChatTurn> turns;
  std::vector<Tool> tools;
  ToolUse tool_use = ToolUse::kAuto;
  std::string named_tool;
  std::vector<std::string> allowed_tools = {};  // names; empty: all may be called
  bool parallel_calls = true;
  std::string template_arguments;  // JSON text of an object for the template; empty: none
  bool add_assistant = true;       // the prompt ends where the answer begins
  // The prompt ends within the last turn, an assistant's without calls.
  bool continues_last = false;
};

// The form of an answer's text, calls of tools aside.
struct OutputForm {
  enum class Kind : uint8_t { kText, kJsonObject, kJsonSchema, kGrammar };
  Kind kind = Kind::kText;
  std::string definition;  // the schema's JSON text, or the GBNF text
  std::string field = {};  // the request's field with the form, for messages
  bool is_strict = false;  // a schema that no grammar can express is refused
};

// A piece of an answer that is being written.
struct ChatDelta {
  enum class Kind : uint8_t { kContent, kReasoning, kCallBegin, kCallArguments };
  Kind kind = Kind::kContent;
  std::string text;     // content, reasoning, or a fragment of the call's arguments; UTF-8
  uint32_t call = 0;    // number of the call, from 0 on
  std::string name;     // kCallBegin: the tool's
  std::string call_id;  // kCallBegin: unique within the answer's conversation
};

}  // namespace moestro
