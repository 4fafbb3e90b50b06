// SPDX-License-Identifier: MIT
#include "chat/answer_style.h"

#include <algorithm>
#include <array>
#include <optional>

namespace moestro {
namespace {

// Which marks stand around content where a template speaks of these texts.
struct ContentRow {
  std::array<std::string_view, 2> texts;
  std::string_view begin;
  std::string_view end;
};
constexpr ContentRow kContents[] = {
    {{"<response>", "<global_setting>"}, "<response>", "</response>"},
    {{"<|extra_0|>", "</think>"}, "<answer>", "</answer>"},
};

void FindContentMarks(std::string_view template_text, AnswerStyle& style) {
  for (const ContentRow& row : kContents) {
    const bool is_spoken_of = std::ranges::all_of(
        row.texts, [template_text](std::string_view text) { return template_text.contains(text); });
    if (!is_spoken_of) continue;
    style.content_begin = row.begin;
    style.content_end = row.end;
    return;
  }
}

}  // namespace

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
  } else if (template_text.contains("<channel|>")) {
    style.reasoning_begin = "<|channel>thought";
    style.reasoning_end = "<channel|>";
  }
  FindContentMarks(template_text, style);
  return style;
}

}  // namespace moestro
