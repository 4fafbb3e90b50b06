// SPDX-License-Identifier: MIT
// The marks in a model's answer that separate thoughts, content and calls of tools.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "chat/call_style.h"

namespace moestro {

// The parts of a tool that are needed to read its calls.
struct ToolShape {
  std::string name;
  std::vector<std::string> text_parameters;  // values are text even if they could be JSON
  // Parameters that take values of these kinds, not of all. If kText is among the kinds, a value of
  // no other kind is text.
  struct Described {
    std::string name;
    std::vector<JsonKind> kinds;
  };
  std::vector<Described> other_parameters = {};
};

struct AnswerStyle {
  CallStyle calls;
  bool is_guess = false;        // the template has no known marks of calls
  std::string reasoning_begin;  // "<think>"; empty: the model has no thoughts
  std::string reasoning_end;
  std::string content_begin;  // "<answer>": written before content by some models; empty: by none
  std::string content_end;
  bool content_ends_thoughts = false;  // content's opening mark does, where theirs is left out
  std::string turn_begin;  // stands before content and calls behind thoughts; empty: nothing
  std::string turn_end;    // a text that ends a turn beside the end tokens; empty: none
  bool begins_in_reasoning = false;  // the prompt ended with reasoning_begin
  bool begins_in_content = false;    // the prompt ended within the answer's text
  bool begins_marked = false;        // the prompt ended with content_begin
  bool has_short_ids = false;        // calls have short ids; call_ids.h
  // A grammar holds the calls, so their arguments may be passed on before their end is seen.
  bool calls_are_certain = false;
  std::vector<ToolShape> tools;
};

// The style of the marks that occur in a chat template's text, for a model that may call tools.
// Without known marks calls are tagged JSON. `tools` and members that depend on the prompt are left
// empty.
AnswerStyle FindStyle(std::string_view template_text);

}  // namespace moestro
