// SPDX-License-Identifier: MIT
// A model's chat template. The library that runs Jinja stays in template.cc.
//
// Immutable after Parse(); any thread may read it.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/work_limit.h"
#include "chat/chat_types.h"
#include "chat/control_text.h"

namespace moestro {

// Choices in which templates differ.
struct TemplateForms {
  bool has_object_arguments = false;  // a call's arguments are an object, else its JSON text
  bool has_null_content = false;      // empty content beside calls is null, else ""
  bool has_thinking_key = false;      // thoughts are "thinking", else "reasoning_content"
};

struct TemplateInput {
  std::span<const ChatTurn> turns;
  std::span<const Tool> tools = {};
  std::string_view arguments = {};  // JSON text of an object; its keys are variables
  bool add_assistant = true;
  TemplateForms forms = {};
  // Marked in tools, arguments and calls; the turns' texts come as they shall be. Null: nothing is.
  const ControlTexts* controls = nullptr;
};

class ChatTemplate {
 public:
  // kUnsupported with the reason: it cannot be parsed, or might not end well (template_guard.h).
  static Result<ChatTemplate> Parse(std::string_view text, std::string_view bos,
                                    std::string_view eos);
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // kInvalidRequest with the template's own words if it refuses, or for JSON in `input` that is
  // none; kUnsupported if it fails otherwise, or uses more time,
  // memory or stack than a rendering may: what the conversation holds does not matter for that
  // promise, since values are counted as they are made. JSON keeps its keys' order. The time of day
  // is in the text only if the template asks for it. And what the limit says.
  Result<std::string> Render(const TemplateInput& input, const WorkLimit& limit = {}) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moestro
