// SPDX-License-Identifier: MIT
// The grammar that holds an answer to the form and the calls that a request demands.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/work_limit.h"
#include "chat/answer_style.h"
#include "chat/chat_types.h"

namespace moestro {

// The marks of thoughts in an answer.
struct ThoughtMarks {
  std::string begin;
  std::string end;           // empty: nowhere
  bool is_open = false;      // the answer begins within
  bool is_anywhere = false;  // else only at the answer's beginning
};

struct AnswerGrammar {
  std::string text;  // GBNF; empty: any answer will do
  // The grammar begins at the first of these texts; empty: with the answer.
  std::vector<std::string> triggers;
  ThoughtMarks sleeps_in;  // thoughts, in which triggers do not count
  bool has_calls = false;  // the grammar holds calls
  // Keywords of schemas that the grammar does not enforce (schema_grammar.h).
  std::vector<std::string> left_out;
};

// `style` with `tools` filled in. `may_think`: the answer may begin with thoughts, which the
// grammar leaves free. A tool whose schema no grammar can express gets any JSON object, unless the
// tool is strict: kUnsupported, as for a strict form.
//
// kInvalidRequest: a call is required and the tool does not exist; a grammar of the client's beside
// tools; a schema that accepts nothing; tools whose grammar is too long. Errors of the limit.
Result<AnswerGrammar> MakeAnswerGrammar(const AnswerStyle& style, const ChatInput& input,
                                        const OutputForm& form, bool may_think,
                                        const WorkLimit& limit = {});

// The parts of a tool's schema that are needed to read a call.
ToolShape ShapeOfTool(const Tool& tool, const WorkLimit& limit = {});

}  // namespace moestro
