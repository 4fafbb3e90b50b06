// SPDX-License-Identifier: MIT
#include "chat/call_style.h"

#include <algorithm>

#include "base/json.h"
#include "base/result.h"
#include "base/text.h"

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
constexpr CallStyle kOpenPipedList = WithMarks(kJsonList, "<|tool_call|>", "");
constexpr CallStyle kTaggedList = WithMarks(kJsonList, "<tool_calls>", "</tool_calls>");

constexpr CallStyle kActionList{.shape = CallShape::kEnvelope,
                                .title = "a list of actions",
                                .begin = "<|START_ACTION|>",
                                .end = "<|END_ACTION|>",
                                .is_around_all = true,
                                .list_begin = "[",
                                .list_end = "]",
                                .list_blank = R"(("\n" " "{0,8})?)",
                                .separator = ",",
                                .between = R"("," " "? ("\n" " "{0,8})?)",
                                .id_key = "tool_call_id",
                                .name_key = "tool_name",
                                .arguments_key = "parameters"};

// One call ends the answer.
constexpr CallStyle kLastJson{.shape = CallShape::kEnvelope,
                              .title = "JSON behind a mark",
                              .begin = "<|function_call|>",
                              .between = "\"\"",
                              .arguments_key = "arguments"};
constexpr CallStyle kRoleJson =
    WithMarks(kLastJson, "<|message_sep|>\n\nfunction call<|role_sep|>\n", "");

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

constexpr CallStyle kNumberedJson{.shape = CallShape::kObject,
                                  .title = "numbered names and JSON",
                                  .begin = "<|tool_calls_section_begin|>",
                                  .end = "<|tool_calls_section_end|>",
                                  .other_begin = "<|tool_call_section_begin|>",
                                  .other_end = "<|tool_call_section_end|>",
                                  .is_around_all = true,
                                  .between = "\"\"",
                                  .call_begin = "<|tool_call_begin|>",
                                  .name_end = "<|tool_call_argument_begin|>",
                                  .call_end = "<|tool_call_end|>",
                                  .numbered_begin = "functions."};

constexpr CallStyle kIdAndJson{.shape = CallShape::kObject,
                               .title = "ids, names and JSON",
                               .begin = "<|tool_calls|>",
                               .end = "<|calls|>",
                               .is_around_all = true,
                               .between = "\"\"",
                               .call_begin = "<|tool_call:begin|>",
                               .name_end = "<|tool_call:args|>",
                               .call_end = "<|tool_call:end|>",
                               .id_end = "<|tool_call:name|>"};

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

constexpr CallStyle kSeedTags = WithMarks(kParameterTags, "<seed:tool_call>", "</seed:tool_call>");

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

constexpr CallStyle kSuffixedTags{.shape = CallShape::kTags,
                                  .title = "suffixed key and value tags",
                                  .begin = "<tool_calls:opensource>",
                                  .end = "</tool_calls:opensource>",
                                  .is_around_all = true,
                                  .has_lines = true,
                                  .call_begin = "<tool_call:opensource>",
                                  .name_end = "<tool_sep:opensource>",
                                  .call_end = "</tool_call:opensource>",
                                  .key_begin = "<arg_key:opensource>",
                                  .key_end = "</arg_key:opensource>",
                                  .value_begin = "<arg_value:opensource>",
                                  .value_end = "</arg_value:opensource>"};

constexpr CallStyle kDsmlTags{.shape = CallShape::kTags,
                              .title = "DSML",
                              .begin = "<｜DSML｜function_calls>",
                              .end = "</｜DSML｜function_calls>",
                              .other_begin = "<｜DSML｜tool_calls>",
                              .other_end = "</｜DSML｜tool_calls>",
                              .is_around_all = true,
                              .has_lines = true,
                              .call_begin = "<｜DSML｜invoke name=\"",
                              .name_end = "\"",
                              .call_end = "</｜DSML｜invoke>",
                              .key_begin = "<｜DSML｜parameter name=\"",
                              .key_end = "\"",
                              .value_end = "</｜DSML｜parameter>",
                              .tag_end = ">",
                              .text_attribute = " string=\"true\"",
                              .json_attribute = R"(" string=\"false\"")",
                              .plain_json_attribute = " string=\"false\"",
                              .behind_key = ""};
constexpr CallStyle WithOtherMarks(CallStyle style, std::string_view begin, std::string_view end) {
  style.other_begin = style.begin;
  style.other_end = style.end;
  style.begin = begin;
  style.end = end;
  return style;
}
constexpr CallStyle kDsmlToolTags =
    WithOtherMarks(kDsmlTags, "<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>");

constexpr CallStyle kSeparatedTags{
    .shape = CallShape::kTags,
    .title = "open and close marks",
    .begin = "<|open|>tools<|sep|>",
    .end = "<|close|>tools<|sep|>",
    .is_around_all = true,
    .between = "\"\"",
    .call_begin = "<|open|>call tool=\"",
    .name_end = "\"",
    .call_end = "<|close|>call<|sep|>",
    .key_begin = "<|open|>argument key=\"",
    .key_end = "\"",
    .value_end = "<|close|>argument<|sep|>",
    .tag_end = "<|sep|>",
    .name_attribute = R"(" index=\"" [0-9]{1,3} "\"")",
    .text_attribute = " type=\"string\"",
    .json_attribute =
        R"(" type=\"" ("integer" | "number" | "boolean" | "object" | "array" | "null") "\"")",
    .plain_json_attribute = " type=\"object\"",
    .behind_name = "",
    .behind_key = "",
    .behind_value = ""};

constexpr CallStyle kNestedTags{.shape = CallShape::kNested,
                                .title = "nested tags",
                                .begin = "]<]minimax[>[<tool_call>",
                                .end = "]<]minimax[>[</tool_call>",
                                .is_around_all = true,
                                .has_lines = true,
                                .call_begin = "]<]minimax[>[<invoke name=\"",
                                .name_end = "\">",
                                .call_end = "]<]minimax[>[</invoke>",
                                .key_begin = "]<]minimax[>[<",
                                .key_end = ">",
                                .value_end = "]<]minimax[>[</",
                                .behind_name = "",
                                .behind_key = "",
                                .behind_value = ""};

constexpr CallStyle kPythonCalls{.shape = CallShape::kPython,
                                 .title = "Python calls",
                                 .begin = "<|tool_call_start|>",
                                 .end = "<|tool_call_end|>",
                                 .is_around_all = true,
                                 .list_begin = "[",
                                 .list_end = "]",
                                 .separator = ",",
                                 .between = R"("," " "?)",
                                 .name_end = "(",
                                 .call_end = ")",
                                 .behind_name = ""};

constexpr CallStyle kChannelCalls{.shape = CallShape::kChannels, .title = "channels"};

// Maps texts that occur in a template to a style. The first match counts.
struct StyleRow {
  std::array<std::string_view, 2> texts;
  CallStyle style;
};
constexpr StyleRow kStyles[] = {
    {{kChannelMark, kMessageMark}, kChannelCalls},
    {{"<|open|>", "<|close|>"}, kSeparatedTags},
    {{kMarkedStrings.begin, kMarkedStrings.call_begin}, kMarkedStrings},
    {{kFencedJson.begin, "```json"}, kFencedJson},
    {{kMarkedJson.begin}, kMarkedJson},
    {{"｜DSML｜", "function_calls>"}, kDsmlTags},
    {{"｜DSML｜", "tool_calls>"}, kDsmlToolTags},
    {{kNumberedJson.begin}, kNumberedJson},
    {{kIdAndJson.call_begin, kIdAndJson.id_end}, kIdAndJson},
    {{"]<]minimax[>[", "<invoke name=\""}, kNestedTags},
    {{kInvokeTags.begin, kInvokeTags.call_begin}, kInvokeTags},
    {{"'<tool_calls{}>'", ":opensource"}, kSuffixedTags},
    {{"<tool_calls:opensource>"}, kSuffixedTags},
    {{"</arg_key><arg_value>"}, kJoinedKeyValueTags},
    {{kKeyValueTags.key_begin, kKeyValueTags.value_begin}, kKeyValueTags},
    {{kSeedTags.begin, kSeedTags.call_begin}, kSeedTags},
    {{kParameterTags.call_begin, kParameterTags.key_begin}, kParameterTags},
    {{kTaggedJson.begin}, kTaggedJson},
    {{"<tool_calls>["}, kTaggedList},
    {{kNamedJson.begin, kNamedJson.name_end}, kNamedJson},
    {{kJsonList.begin}, kJsonList},
    {{kPipedList.begin, kPipedList.end}, kPipedList},
    {{kOpenPipedList.begin}, kOpenPipedList},
    {{kActionList.begin, kActionList.name_key}, kActionList},
    {{kLastJson.begin}, kLastJson},
    {{"<|role_sep|>", "function call"}, kRoleJson},
    {{kPythonCalls.begin}, kPythonCalls},
    {{"<|tool_list_start|>"}, kPythonCalls},
    {{"List of tools: ["}, kPythonCalls},
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

bool IsOfMark(const CallStyle& style, std::string_view text) {
  const std::array marks = {style.begin,      style.end,         style.call_begin, style.name_end,
                            style.call_end,   style.before_end,  style.id_end,     style.key_begin,
                            style.key_end,    style.value_begin, style.value_end,  style.tag_end,
                            style.string_mark};
  return text.size() > 1 &&
         std::ranges::any_of(marks, [text](std::string_view mark) { return mark.contains(text); });
}

std::vector<std::string_view> CallStyleTitles() {
  std::vector<std::string_view> titles;
  for (const StyleRow& row : kStyles) {
    if (!std::ranges::contains(titles, row.style.title)) titles.push_back(row.style.title);
  }
  return titles;
}

AroundArguments TextAround(const CallStyle& style, std::string_view name) {
  switch (style.shape) {
    case CallShape::kEnvelope: {
      const std::string id = style.id_key.empty() ? "" : Format(R"("{}": "0", )", style.id_key);
      return {.before = Format(R"({{{}"{}": {}, "{}": )", id, style.name_key, Json(name).Dump(),
                               style.arguments_key),
              .behind = "}"};
    }
    case CallShape::kObject:
      if (style.is_fenced) {
        return {.before = Format("{}{}{}{}\n{}\n", style.call_begin, style.kind, style.name_end,
                                 name, style.fence_begin),
                .behind = Format("\n{}{}", style.fence_end, style.call_end)};
      }
      return {.before = Format("{}{}{}{}", style.call_begin, style.numbered_begin, name,
                               style.numbered_begin.empty() ? "" : ":0") +
                        std::string(style.name_end),
              .behind = std::string(style.call_end)};
    case CallShape::kTags:
    case CallShape::kNested:
    case CallShape::kPython:
      return {.before = Format("{}{}{}{}{}", style.call_begin, name, style.name_end, style.tag_end,
                               style.behind_name),
              .behind = std::string(style.call_end)};
    case CallShape::kNone:
    case CallShape::kChannels:
      break;
  }
  CHECK(false);
}

}  // namespace moestro
