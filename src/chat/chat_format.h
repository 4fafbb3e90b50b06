// SPDX-License-Identifier: MIT
// How a model takes a conversation and writes its answer: its chat template, rendered with all that
// templates know (tools, thinking), and the marks by which it writes thoughts and calls of tools.
//
// Immutable after Make(); any thread may read it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "chat/chat_types.h"

namespace moestro {

// What is known of the model.
struct ChatModel {
  std::string template_text;  // its chat template (Jinja); empty: none
  std::string bos;            // text of the token that begins a text; empty: none
  std::string eos;
  bool has_chatml_marks = false;  // <|im_start|> and <|im_end|> are tokens
};

// How an answer's text is to be read.
struct AnswerStyle {
  enum class Calls : uint8_t { kNone, kTagged, kJson, kMarkedList, kPythonTag };
  Calls calls = Calls::kNone;
  std::string reasoning_begin;  // "<think>"; empty: the model has no thoughts
  std::string reasoning_end;
  bool begins_in_reasoning = false;  // the prompt ended with reasoning_begin
};

// A conversation ready for the model.
struct RenderedChat {
  std::string prompt;  // control tokens are spelled
  std::string grammar;  // GBNF of the answer; empty: any text
  // The grammar begins at the first of these texts; empty: at once.
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

  // kInvalidRequest: the template refuses the conversation (its own words), a form that contradicts
  // tool_use, a schema that cannot be (schema_grammar.h).
  Result<RenderedChat> Render(const ChatInput& input, const OutputForm& form) const;
  // One line for the log.
  std::string_view description() const;

 private:
  struct Impl;
  explicit ChatFormat(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Reads an answer as it grows: thoughts, content and calls apart. Holds back text that may be the
// beginning of a mark. Text that begins like a call and is none comes out as content.
//
// Thread rule: one thread.
class AnswerParser {
 public:
  // `id_seed`: makes the calls' ids.
  AnswerParser(const AnswerStyle& style, uint64_t id_seed);
  std::vector<ChatDelta> Push(std::string_view text);
  // No more is to come.
  std::vector<ChatDelta> Finish();
  bool has_calls() const;

 private:
  AnswerStyle style_;
};

}  // namespace moestro
