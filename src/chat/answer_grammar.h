// SPDX-License-Identifier: MIT
// The grammar that holds an answer to what a request demands of it.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/work_limit.h"
#include "chat/answer_style.h"
#include "chat/chat_types.h"

namespace moestro {

// Where an answer's thoughts are.
struct ThoughtMarks {
  std::string begin;
  std::string end;           // empty: nowhere
  bool is_open = false;      // the answer begins within
  bool is_anywhere = false;  // else at its beginning only
};

struct AnswerGrammar {
  std::string text;  // GBNF; empty: any answer will do
  // It begins at the first of these texts; empty: with the answer.
  std::vector<std::string> triggers;
  ThoughtMarks sleeps_in;  // in which triggers mean nothing
  bool has_calls = false;  // calls are held by it
  // Keywords of schemas that it does not hold the answer to (schema_grammar.h).
  std::vector<std::string> left_out;
};

// `style` with `tools` filled in. `may_think`: the answer may begin with thoughts, which the
// grammar leaves free. A tool whose schema no grammar can say gets any JSON object, unless it is
// strict: kUnsupported, as for a strict form.
//
// kInvalidRequest: a call is required and there is no such tool; a grammar of the client's beside
// tools; a schema that accepts nothing; tools whose grammar is too long. And what the limit says.
Result<AnswerGrammar> MakeAnswerGrammar(const AnswerStyle& style, const ChatInput& input,
                                        const OutputForm& form, bool may_think,
                                        const WorkLimit& limit = {});

// What reading a call of a tool needs to know of its schema.
ToolShape ShapeOfTool(const Tool& tool, const WorkLimit& limit = {});

}  // namespace moestro
