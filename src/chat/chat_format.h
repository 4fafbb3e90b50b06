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
#include "chat/answer_parser.h"
#include "chat/answer_style.h"
#include "chat/chat_types.h"

namespace moestro {

// What is known of the model.
struct ChatModel {
  std::string template_text;  // its chat template (Jinja); empty: none
  std::string bos;            // text of the token that begins a text; empty: none
  std::string eos;
  bool has_chatml_marks = false;  // <|im_start|> and <|im_end|> are tokens
};

// A conversation ready for the model.
struct RenderedChat {
  std::string prompt;   // control tokens are spelled
  std::string grammar;  // GBNF of the answer; empty: any text
  // The grammar begins at the first of these texts, with it; empty: at once. Thoughts may speak of
  // them without meaning it.
  std::vector<std::string> grammar_triggers;
  std::vector<std::string> stops;  // texts that end this model's turn beside its end tokens
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
  // schema that no grammar can say.
  Result<RenderedChat> Render(const ChatInput& input, const OutputForm& form) const;
  // One line for the log.
  std::string_view description() const;

 private:
  struct Impl;
  explicit ChatFormat(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moestro
