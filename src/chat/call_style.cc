// SPDX-License-Identifier: MIT
#include "chat/call_style.h"

#include <algorithm>

#include "base/check.h"
#include "base/format.h"
#include "base/json.h"

namespace moestro {
namespace {

constexpr CallStyle kTaggedJson{.shape = CallShape::kEnvelope,
                                .title = "tagged JSON",
                                .begin = "<tool_call>",
                                .end = "</tool_call>",
                                .has_lines = true,
                                .arguments_key = "arguments"};

constexpr CallStyle kJsonList{.shape = CallShape::kEnvelope,
                              .title = "a list of JSON",
                              .begin = "[TOOL_CALLS]",
                              .is_around_all = true,
                              .list_begin = "[",
                              .list_end = "]",
                              .separator = ",",
                              .between = R"("," " "?)",
                              .arguments_key = "arguments"};

constexpr CallStyle WithMarks(CallStyle style, std::string_view begin, std::string_view end) {
  style.begin = begin;
  style.end = end;
  return style;
}
constexpr CallStyle kPipedList = WithMarks(kJsonList, "<|tool_call|>", "<|/tool_call|>");
constexpr CallStyle kTaggedList = WithMarks(kJsonList, "<tool_calls>", "</tool_calls>");

constexpr CallStyle kBareJson{.shape = CallShape::kEnvelope,
                              .title = "bare JSON",
                              .begin = "<|python_tag|>",
                              .is_around_all = true,
                              .may_lack_begin = true,
                              .between = R"(";" [ \n]?)",
                              .arguments_key = "parameters"};

constexpr CallStyle kNamedJson{.shape = CallShape::kObject,
                               .title = "names and JSON",
                               .begin = "[TOOL_CALLS]",
                               .name_end = "[ARGS]",
                               .before_end = "[CALL_ID]"};

constexpr CallStyle kMarkedStrings{.shape = CallShape::kObject,
                                   .title = "marked strings",
                                   .begin = "<|tool_call>",
                                   .end = "<tool_call|>",
                                   .between = "\"\"",
                                   .call_begin = "call:",
                                   .string_mark = "<|\"|>"};

constexpr CallStyle kMarkedJson{.shape = CallShape::kObject,
                                .title = "fenced JSON",
                                .begin = "<｜tool▁calls▁begin｜>",
                                .end = "<｜tool▁calls▁end｜>",
                                .is_around_all = true,
                                .call_begin = "<｜tool▁call▁begin｜>",
                                .name_end = "<｜tool▁sep｜>",
                                .call_end = "<｜tool▁call▁end｜>",
                                .kind = "function",
                                .fence_begin = "```json",
                                .fence_end = "```"};

constexpr CallStyle WithFence(CallStyle style) {
  style.is_fenced = true;
  return style;
}
constexpr CallStyle kFencedJson = WithFence(kMarkedJson);

constexpr CallStyle kParameterTags{.shape = CallShape::kTags,
                                   .title = "parameter tags",
                                   .begin = "<tool_call>",
                                   .end = "</tool_call>",
                                   .may_lack_begin = true,
                                   .has_lines = true,
                                   .call_begin = "<function=",
                                   .name_end = ">",
                                   .call_end = "</function>",
                                   .key_begin = "<parameter=",
                                   .key_end = ">",
                                   .value_end = "</parameter>",
                                   .before_value_end = "\n"};

constexpr CallStyle kInvokeTags{.shape = CallShape::kTags,
                                .title = "invoke tags",
                                .begin = "<minimax:tool_call>",
                                .end = "</minimax:tool_call>",
                                .is_around_all = true,
                                .has_lines = true,
                                .call_begin = "<invoke name=\"",
                                .name_end = "\">",
                                .call_end = "</invoke>",
                                .key_begin = "<parameter name=\"",
                                .key_end = "\">",
                                .value_end = "</parameter>",
                                .behind_key = ""};

constexpr CallStyle kKeyValueTags{.shape = CallShape::kTags,
                                  .title = "key and value tags",
                                  .begin = "<tool_call>",
                                  .end = "</tool_call>",
                                  .key_begin = "<arg_key>",
                                  .key_end = "</arg_key>",
                                  .value_begin = "<arg_value>",
                                  .value_end = "</arg_value>"};

constexpr CallStyle WithoutLines(CallStyle style) {
  style.behind_name = style.behind_key = style.behind_value = {};
  return style;
}
constexpr CallStyle kJoinedKeyValueTags = WithoutLines(kKeyValueTags);

constexpr CallStyle kChannelCalls{.shape = CallShape::kChannels, .title = "channels"};

// Which style a template has that speaks of these texts. The first counts.
struct StyleRow {
  std::array<std::string_view, 2> texts;
  CallStyle style;
};
constexpr StyleRow kStyles[] = {
    {{kChannelMark, kMessageMark}, kChannelCalls},
    {{kMarkedStrings.begin, kMarkedStrings.call_begin}, kMarkedStrings},
    {{kFencedJson.begin, "```json"}, kFencedJson},
    {{kMarkedJson.begin}, kMarkedJson},
    {{kInvokeTags.begin, kInvokeTags.call_begin}, kInvokeTags},
    {{"</arg_key><arg_value>"}, kJoinedKeyValueTags},
    {{kKeyValueTags.key_begin, kKeyValueTags.value_begin}, kKeyValueTags},
    {{kParameterTags.call_begin, kParameterTags.key_begin}, kParameterTags},
    {{kTaggedJson.begin}, kTaggedJson},
    {{"<tool_calls>["}, kTaggedList},
    {{kNamedJson.begin, kNamedJson.name_end}, kNamedJson},
    {{kJsonList.begin}, kJsonList},
    {{kPipedList.begin}, kPipedList},
    {{kBareJson.begin}, kBareJson},
    {{"<|eot_id|>", "parameters"}, kBareJson},
};

}  // namespace

std::optional<CallStyle> FindCallStyle(std::string_view template_text) {
  const auto is_spoken_of = [template_text](const StyleRow& row) {
    return std::ranges::all_of(
        row.texts, [template_text](std::string_view text) { return template_text.contains(text); });
  };
  const auto* const found = std::ranges::find_if(kStyles, is_spoken_of);
  if (found == std::end(kStyles)) return std::nullopt;
  return found->style;
}

CallStyle PlainCallStyle() { return kTaggedJson; }

bool IsMarkInCalls(std::string_view text) {
  return !text.empty() && std::ranges::any_of(kStyles, [text](const StyleRow& row) {
    const CallStyle& style = row.style;
    return style.shape == CallShape::kObject &&
           (text == style.call_begin || text == style.name_end || text == style.before_end ||
            text == style.call_end || text == style.string_mark);
  });
}

AroundArguments TextAround(const CallStyle& style, std::string_view name) {
  switch (style.shape) {
    case CallShape::kEnvelope:
      return {.before = Format(R"({{"name": {}, "{}": )", Json(name).Dump(), style.arguments_key),
              .behind = "}"};
    case CallShape::kObject:
      if (style.is_fenced) {
        return {.before = Format("{}{}{}{}\n{}\n", style.call_begin, style.kind, style.name_end,
                                 name, style.fence_begin),
                .behind = Format("\n{}{}", style.fence_end, style.call_end)};
      }
      return {.before = Format("{}{}{}", style.call_begin, name, style.name_end),
              .behind = std::string(style.call_end)};
    case CallShape::kTags:
      return {
          .before = Format("{}{}{}{}", style.call_begin, name, style.name_end, style.behind_name),
          .behind = std::string(style.call_end)};
    case CallShape::kNone:
    case CallShape::kChannels:
      break;
  }
  CHECK(false);
}

}  // namespace moestro
