// SPDX-License-Identifier: MIT
// A rendering's input as messages between two processes. Large texts go in parts, so that neither
// side holds a whole text twice.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "chat/chat_types.h"
#include "chat/template.h"

namespace moestro {

// A TemplateInput that owns its texts.
struct SentInput {
  std::vector<ChatTurn> turns;
  std::vector<Tool> tools;
  std::string arguments;
  bool add_assistant = true;
  TemplateForms forms;
};

// Bytes of the input's texts.
size_t SizeOf(const TemplateInput& input);

// `write` sends one message, of kPartBytes at most. `goes_on` is called before each turn and tool.
inline constexpr size_t kPartBytes = size_t{256} << 10U;
Status WriteInput(const TemplateInput& input, const std::function<Status(std::string_view)>& write,
                  const std::function<Status()>& goes_on);

// `read` returns the next message; nullopt: none comes. Returns nullopt if the messages are not
// those of WriteInput().
std::optional<SentInput> ReadInput(const std::function<std::optional<std::string>()>& read);

}  // namespace moestro
