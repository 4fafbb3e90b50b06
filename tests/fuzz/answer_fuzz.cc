// SPDX-License-Identifier: MIT
// Any text as a model's answer, in the style that its first byte picks: however it is cut, it is
// read the same, and the arguments of calls are JSON.
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/text.h"
#include "chat/answer_parser.h"

namespace moestro {
namespace {

AnswerStyle StyleOf(uint8_t byte) {
  constexpr std::string_view kTemplates[] = {"<tool_call></think>",
                                             "[TOOL_CALLS][/THINK]",
                                             "[TOOL_CALLS][ARGS]",
                                             "<|python_tag|>",
                                             "<function=<parameter=</think>",
                                             "<arg_key><arg_value></think>",
                                             "<｜tool▁calls▁begin｜>```json</think>",
                                             "<|channel|><|message|>",
                                             "<minimax:tool_call><invoke name=\"</think>",
                                             "</arg_key><arg_value></think>",
                                             "<tool_calls>[<|extra_0|></think>",
                                             "<tool_call><response><global_setting></think>"};
  AnswerStyle style = FindStyle(kTemplates[byte % std::size(kTemplates)]);
  style.begins_in_reasoning = byte >= 128 && !style.reasoning_begin.empty();
  style.tools = {{.name = "a", .text_parameters = {"t"}}};
  return style;
}

// Deltas of one kind in a row are one.
std::vector<ChatDelta> Read(const AnswerStyle& style, std::string_view text, size_t step) {
  AnswerParser parser(style, 1);
  std::vector<ChatDelta> all;
  const auto add = [&all](std::vector<ChatDelta> deltas) {
    for (ChatDelta& delta : deltas) {
      const bool joins = !all.empty() && all.back().kind == delta.kind &&
                         delta.kind != ChatDelta::Kind::kCallBegin && all.back().call == delta.call;
      CHECK(FindInvalidUtf8(delta.text) == delta.text.size());
      if (joins) {
        all.back().text += delta.text;
      } else {
        all.push_back(std::move(delta));
      }
    }
  };
  size_t begin = 0;
  while (begin < text.size()) {
    size_t end = begin;
    while (end < text.size() && end - begin < step) end += ReadUtf8(text.substr(end)).length;
    add(parser.Push(text.substr(begin, end - begin)));
    begin = end;
  }
  add(parser.Finish());
  return all;
}

void Examine(AnswerStyle style, std::string_view text) {
  for (const bool certain : {false, true}) {
    style.calls_are_certain = certain;
    const std::vector<ChatDelta> whole = Read(style, text, text.size());
    for (const size_t step : {1, 7}) {
      const std::vector<ChatDelta> cut = Read(style, text, step);
      CHECK(cut.size() == whole.size());
      for (size_t i = 0; i < cut.size(); ++i) {
        CHECK(cut[i].kind == whole[i].kind && cut[i].text == whole[i].text);
        CHECK(cut[i].name == whole[i].name && cut[i].call_id == whole[i].call_id);
      }
    }
    for (const ChatDelta& delta : whole) {
      if (certain || delta.kind != ChatDelta::Kind::kCallArguments) continue;
      CHECK(delta.text.starts_with('{') && Json::Parse(delta.text).has_value());
    }
  }
}

}  // namespace
}  // namespace moestro

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  moestro::Examine(moestro::StyleOf(data[0]), bytes.substr(0, moestro::FindInvalidUtf8(bytes)));
  return 0;
}
