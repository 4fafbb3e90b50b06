// SPDX-License-Identifier: MIT
#include "chat/answer_style.h"

namespace moestro {
namespace {

void SetCalls(AnswerStyle& style, CallFormat format, std::string_view begin, std::string_view end) {
  style.calls = format;
  style.call_begin = begin;
  style.call_end = end;
}

}  // namespace

AnswerStyle FindStyle(std::string_view t) {
  AnswerStyle style;
  const auto has = [t](std::string_view mark) { return t.contains(mark); };
  if (has(kChannelMark) && has(kMessageMark)) {
    SetCalls(style, CallFormat::kChannels, {}, {});
    return style;
  }
  if (has("</think>")) {
    style.reasoning_begin = "<think>";
    style.reasoning_end = "</think>";
  } else if (has("[/THINK]")) {
    style.reasoning_begin = "[THINK]";
    style.reasoning_end = "[/THINK]";
  }
  if (has("<｜tool▁calls▁begin｜>")) {
    SetCalls(style, CallFormat::kFenced, "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>");
    style.fences_calls = has("```json");
  } else if (has(kKeyTag) && has(kValueTag)) {
    SetCalls(style, CallFormat::kKeyValueTags, "<tool_call>", "</tool_call>");
  } else if (has(kFunctionTag) && has(kParameterTag)) {
    SetCalls(style, CallFormat::kParameterTags, "<tool_call>", "</tool_call>");
  } else if (has("<tool_call>")) {
    SetCalls(style, CallFormat::kTaggedJson, "<tool_call>", "</tool_call>");
  } else if (has("[TOOL_CALLS]") && has(kArgumentsMark)) {
    SetCalls(style, CallFormat::kNamed, "[TOOL_CALLS]", {});
  } else if (has("[TOOL_CALLS]")) {
    SetCalls(style, CallFormat::kList, "[TOOL_CALLS]", {});
  } else if (has("<|tool_call|>")) {
    SetCalls(style, CallFormat::kList, "<|tool_call|>", "<|/tool_call|>");
  } else if (has("<|python_tag|>") || (has("<|eot_id|>") && has("parameters"))) {
    SetCalls(style, CallFormat::kBareJson, "<|python_tag|>", {});
  } else {
    SetCalls(style, CallFormat::kTaggedJson, "<tool_call>", "</tool_call>");
    style.is_guess = true;
  }
  return style;
}

}  // namespace moestro
