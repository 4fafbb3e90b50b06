// SPDX-License-Identifier: MIT
#include "chat/answer_style.h"

#include <optional>

namespace moestro {

AnswerStyle FindStyle(std::string_view template_text) {
  AnswerStyle style;
  const std::optional<CallStyle> calls = FindCallStyle(template_text);
  style.calls = calls.value_or(PlainCallStyle());
  style.is_guess = !calls;
  if (style.calls.shape == CallShape::kChannels) return style;  // which hold its thoughts, too
  if (template_text.contains("</think>")) {
    style.reasoning_begin = "<think>";
    style.reasoning_end = "</think>";
  } else if (template_text.contains("[/THINK]")) {
    style.reasoning_begin = "[THINK]";
    style.reasoning_end = "[/THINK]";
  }
  return style;
}

}  // namespace moestro
