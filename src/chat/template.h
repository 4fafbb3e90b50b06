// SPDX-License-Identifier: MIT
// A model's chat template. It is rendered in a process of its own (template_process.h), since it
// comes with a model, and the library that runs it trusts it.
//
// Thread rule: any thread. Two renderings run at a time: one of a large conversation, one of a
// small one.
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
  // A tool's properties are left out where there are none: the template asks whether there are
  // some, and for the library an empty object is some.
  bool has_no_empty_properties = false;
};

struct TemplateInput {
  std::span<const ChatTurn> turns;
  std::span<const Tool> tools = {};
  std::string_view arguments = {};  // JSON text of an object; its keys are variables
  bool add_assistant = true;
  TemplateForms forms = {};
};

class ChatTemplate {
 public:
  // Forks: the rules of ChildStarter::Start() hold. `controls` are marked in tools, arguments and
  // calls; the turns' texts come as they shall be. kUnsupported with the reason: it cannot be
  // parsed, or the library does not survive that. kIo: there can be no process.
  static Result<ChatTemplate> Parse(std::string_view text, std::string_view bos,
                                    std::string_view eos, const ControlTexts& controls = {});
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // kInvalidRequest with the template's own words if it refuses, or for JSON in `input` that is
  // none, or if a large conversation takes more memory than a rendering may; kUnsupported if it
  // fails otherwise, or takes more than a rendering may; kIo: there is no process for it. JSON
  // keeps its keys' order. The time of day is in the text only if the template asks for it. And
  // what the limit says, which the time of the rendering's process counts for.
  Result<std::string> Render(const TemplateInput& input, const WorkLimit& limit = {}) const;
  int spawner_id() const;  // process numbers, for tests
  int helper_id() const;

 private:
  class Lane;
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moestro
