// SPDX-License-Identifier: MIT
#include "chat/answer_style.h"

#include <algorithm>
#include <array>
#include <optional>

namespace moestro {
namespace {

// Marks around content, by texts that occur in a template.
struct ContentRow {
  std::array<std::string_view, 2> texts;
  std::string_view begin;
  std::string_view end;
};
constexpr ContentRow kContents[] = {
    {{"<response>", "<global_setting>"}, "<response>", "</response>"},
    {{"<|extra_0|>", "</think>"}, "<answer>", "</answer>"},
    {{"<response>", "</response> for each"}, "<response>", "</response>"},
    {{"<|START_RESPONSE|>"}, "<|START_RESPONSE|>", "<|END_RESPONSE|>"},
    {{"<|START_TEXT|>"}, "<|START_TEXT|>", "<|END_TEXT|>"},
    {{"<|open|>", "<|close|>"}, "<|open|>response<|sep|>", "<|close|>response<|sep|>"},
    {{"<|begin|>assistant<|content|>"}, "<|content|>", "<|end|>"},
};

// Marks around thoughts, by a text that occurs in a template.
struct ThoughtRow {
  std::string_view text;
  std::string_view begin;
  std::string_view end;
};
constexpr ThoughtRow kThoughts[] = {
    {"<|open|>", "<|open|>think<|sep|>", "<|close|>think<|sep|>"},
    {"</mm:think>", "<mm:think>", "</mm:think>"},
    {"'</think{}>'.format", "<think:opensource>", "</think:opensource>"},
    {"<|END_THINKING|>", "<|START_THINKING|>", "<|END_THINKING|>"},
    {"<|begin|>assistant<|think|>", "<|think|>", "<|end|>"},
    {"</think>", "<think>", "</think>"},
    {"[/THINK]", "[THINK]", "[/THINK]"},
    {"<channel|>", "<|channel>thought", "<channel|>"},
};

void FindThoughtMarks(std::string_view template_text, AnswerStyle& style) {
  const auto* const found = std::ranges::find_if(kThoughts, [template_text](const ThoughtRow& row) {
    return template_text.contains(row.text);
  });
  if (found == std::end(kThoughts)) return;
  style.reasoning_begin = found->begin;
  style.reasoning_end = found->end;
}

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
  if (style.calls.shape == CallShape::kChannels) return style;  // channels hold thoughts, too
  FindThoughtMarks(template_text, style);
  FindContentMarks(template_text, style);
  if (style.content_begin == "<|content|>") style.turn_begin = "<|begin|>assistant";
  if (style.content_begin.starts_with("<|open|>")) {
    style.content_ends_thoughts = true;
    style.turn_end = "<|close|>message<|sep|>";
  }
  return style;
}

}  // namespace moestro
