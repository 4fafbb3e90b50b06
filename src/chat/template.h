// SPDX-License-Identifier: MIT
// A model's chat template. It is rendered in a process of its own (template_process.h): it is a
// program that came with a model, and may run without end or take all memory.
//
// Thread rule: any thread. Two renderings run at a time: one of a large conversation, one of a
// small one.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/work_limit.h"
#include "chat/chat_types.h"
#include "chat/control_text.h"

namespace moestro {

class ChildStarter;

// The key of an assistant's thoughts in a message.
enum class ThoughtsKey : uint8_t { kReasoningContent, kThinking, kReasoning };
constexpr std::string_view ThoughtsKeyName(ThoughtsKey key) {
  constexpr std::array<std::string_view, 3> kNames{"reasoning_content", "thinking", "reasoning"};
  return kNames[static_cast<size_t>(key)];
}

// Choices in which templates differ.
struct TemplateForms {
  bool has_object_arguments = false;  // a call's arguments are an object, else JSON text
  bool has_null_content = false;      // empty content beside calls is null, else ""
  bool has_undefined_tools = false;   // without tools the variable is missing, else none
  ThoughtsKey thoughts_key = ThoughtsKey::kReasoningContent;
};

struct TemplateInput {
  std::span<const ChatTurn> turns;
  std::span<const Tool> tools = {};
  std::string_view arguments = {};  // JSON text of an object, whose keys become variables
  bool add_assistant = true;
  TemplateForms forms = {};
};

class ChatTemplate {
 public:
  // Forks: the rules of ChildStarter::Start() hold. `controls` are marked in tools, arguments and
  // calls; the turns' texts are taken as they are. kUnsupported with the reason: the template
  // cannot be parsed, or takes more than parsing may. kIo: no process can be started.
  static Result<ChatTemplate> Parse(std::string_view text, std::string_view bos,
                                    std::string_view eos, const ControlTexts& controls = {});
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // kInvalidRequest with the template's own words if it refuses, for JSON in `input` that is none,
  // or if a large conversation takes more memory than a rendering may; kUnsupported if the template
  // fails otherwise, or takes more than a rendering may; kIo: no process can be started. JSON keeps
  // its keys' order. The text depends on the time of day only if the template uses it. Errors of
  // the limit, to which the process's time is charged.
  Result<std::string> Render(const TemplateInput& input, const WorkLimit& limit = {}) const;
  ChildStarter& starter() const;
  int spawner_id() const;  // process numbers, for tests
  int helper_id() const;

 private:
  class Lane;
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Chat templates that have a name, for models that come without one or with a wrong one.

// Jinja text; none: no template has that name.
std::optional<std::string_view> KnownTemplate(std::string_view name);
// The known template for the marks of turns that occur in `template_text`, for a model whose own
// template fails. none: no known marks.
struct NamedTemplate {
  std::string_view name;
  std::string_view text;
};
std::optional<NamedTemplate> TemplateOfMarks(std::string_view template_text);
// All names, for messages.
std::string KnownTemplateNames();

}  // namespace moestro
