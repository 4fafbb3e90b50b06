// SPDX-License-Identifier: MIT
// A model's way to take a conversation: its chat template, rendered with everything that templates
// use (tools, thinking), and the style and parser of its answers (answer_style.h, answer_parser.h).
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

// The effort of models of channels: the amount of their thoughts.

// A template's arguments with an effort that models of channels have: low, medium or high. Such
// models always think, so no thoughts become few. Other values stay as they are. `arguments`: JSON
// text of an object; empty: none.
std::string WithChannelEffort(std::string_view arguments);

// Finds the beginnings of a conversation's prompt that later prompts are likely to share. Pure.

// Conversations whose prompts begin like the prompt of `chat`, each up to a place where later turns
// may part from it: one with the same instructions and tools and another message, and `chat`
// without the beginning of an answer, which a later turn often renders otherwise.
std::vector<ChatInput> LikelyBeginnings(const ChatInput& chat);

class ChildStarter;

// Parts of the model that the format depends on.
struct ChatModel {
  std::string template_text;  // the model's chat template (Jinja); empty: none
  std::string bos;            // text of the token that begins a text; empty: none
  std::string eos;
  bool has_chatml_marks = false;                // <|im_start|> and <|im_end|> are tokens
  std::vector<std::string> control_texts = {};  // texts of tokens that no client may write
};

// A conversation ready for the model.
struct RenderedChat {
  std::string prompt;           // control tokens are spelled
  std::vector<TextPart> plain;  // parts of the prompt in which control texts are the client's words
  std::string grammar;          // GBNF of the answer; empty: any text
  // The grammar begins with the first of these texts; empty: at once.
  std::vector<std::string> grammar_triggers;
  ThoughtMarks grammar_sleeps_in;     // thoughts, which may mention those texts
  std::vector<std::string> left_out;  // keywords of schemas that the grammar does not enforce
  std::vector<std::string> stops;     // texts that end this model's turn beside its end tokens
  AnswerStyle style;
};

class ChatFormat {
 public:
  // Takes the model's template, else ChatML if the vocabulary has its marks, else "role: text"
  // lines; description() names the choice. A template that cannot be parsed counts as none, and
  // description() names the reason.
  static ChatFormat Make(const ChatModel& model);
  ChatFormat(ChatFormat&&) noexcept;
  ChatFormat& operator=(ChatFormat&&) noexcept;
  ~ChatFormat();

  // Tools stay in the prompt when none may be called, so that it keeps its beginning.
  //
  // kInvalidRequest: the template refuses the conversation (its own words), a form that contradicts
  // tool_use, a schema that accepts nothing (schema_grammar.h). kUnsupported: the template fails,
  // or no grammar can express a schema. Errors of the limit.
  Result<RenderedChat> Render(const ChatInput& input, const OutputForm& form,
                              const WorkLimit& limit = {}) const;
  // One line for the log.
  std::string_view description() const;
  // Warnings for a user of the model, a line each: a template that cannot be used, calls of tools
  // in an unknown form.
  const std::vector<std::string>& warnings() const;
  // Answers may begin with thoughts.
  bool has_thoughts() const;
  // Starts the template's processes; null: no template.
  ChildStarter* starter() const;

 private:
  struct Impl;
  explicit ChatFormat(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moestro
