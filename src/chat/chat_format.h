// SPDX-License-Identifier: MIT
// How a model takes a conversation: its chat template, rendered with all that templates know
// (tools, thinking), and what holds and reads the answer (answer_style.h, answer_parser.h).
//
// Immutable after Make(); any thread may read it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/work_limit.h"
#include "chat/answer_grammar.h"
#include "chat/answer_parser.h"
#include "chat/answer_style.h"
#include "chat/chat_types.h"
#include "chat/control_text.h"

namespace moestro {

class ChildStarter;

// What is known of the model.
struct ChatModel {
  std::string template_text;  // its chat template (Jinja); empty: none
  std::string bos;            // text of the token that begins a text; empty: none
  std::string eos;
  bool has_chatml_marks = false;                // <|im_start|> and <|im_end|> are tokens
  std::vector<std::string> control_texts = {};  // of tokens that no client may write
};

// A conversation ready for the model.
struct RenderedChat {
  std::string prompt;           // control tokens are spelled
  std::vector<TextPart> plain;  // of the prompt: there they are words of the client's
  std::string grammar;          // GBNF of the answer; empty: any text
  // The grammar begins at the first of these texts, with it; empty: at once.
  std::vector<std::string> grammar_triggers;
  ThoughtMarks grammar_sleeps_in;     // thoughts may speak of those texts without meaning it
  std::vector<std::string> left_out;  // keywords of schemas that the grammar does not say
  std::vector<std::string> stops;     // texts that end this model's turn beside its end tokens
  AnswerStyle style;
};

class ChatFormat {
 public:
  // Takes what the model has, else ChatML if the vocabulary has its marks, else "role: text" lines;
  // description() says which. A template that cannot be parsed is like none, and said there, too.
  static ChatFormat Make(const ChatModel& model);
  ChatFormat(ChatFormat&&) noexcept;
  ChatFormat& operator=(ChatFormat&&) noexcept;
  ~ChatFormat();

  // Tools stay in the prompt when none may be called, so that it keeps its beginning.
  //
  // kInvalidRequest: the template refuses the conversation (its own words), a form that contradicts
  // tool_use, a schema that cannot be (schema_grammar.h). kUnsupported: the template fails, a
  // schema that no grammar can say. And what the limit says.
  Result<RenderedChat> Render(const ChatInput& input, const OutputForm& form,
                              const WorkLimit& limit = {}) const;
  // One line for the log.
  std::string_view description() const;
  // What a user of the model must know of it, a line each: a template that cannot be used, calls of
  // tools in a form that is not known.
  const std::vector<std::string>& warnings() const;
  // Its answers may begin with thoughts.
  bool has_thoughts() const;
  // Of the template's processes; null: there is no template.
  ChildStarter* starter() const;

 private:
  struct Impl;
  explicit ChatFormat(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moestro
