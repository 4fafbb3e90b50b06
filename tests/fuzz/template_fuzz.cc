// SPDX-License-Identifier: MIT
// Any bytes as a chat template: the language itself in this process, where the fuzzer sees what it
// reaches, and every hundredth input in the processes of a chat template.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "chat/template.h"
#include "jinja/json_text.h"
#include "jinja/template.h"

namespace moestro {
namespace {

void ExamineLanguage(std::string_view text) {
  const auto parsed = jinja::Template::Parse(text);
  if (!parsed) return;
  jinja::JsonReading reading{.values_left = 1000};
  const auto variables = jinja::ReadJson(
      R"({"messages": [{"role": "user", "content": "H\u00e9", "n": [1, 2.5, null, true]}], "t": "a b"})",
      reading);
  CHECK(variables.has_value());
  size_t bytes = 0;
  const Status said = parsed->Render(
      *variables, [&bytes](std::string_view part) { bytes += part.size(); }, {.most_steps = 2000});
  CHECK(said.has_value() || !said.error().message.empty());
}

void ExamineProcesses(std::string_view text) {
  const Result<ChatTemplate> parsed = ChatTemplate::Parse(text, "<s>", "</s>");
  if (!parsed) return;
  std::vector<ChatTurn> turns(3);
  turns[0].role = "user";
  turns[0].content = "Hi";
  turns[1].role = "assistant";
  turns[1].calls.push_back({.id = "c", .name = "f", .arguments = R"({"a": [1, "b"]})"});
  turns[2].role = "tool";
  turns[2].content = "x";
  const std::vector<Tool> tools{{.name = "f", .description = "d", .parameters = "{\"a\": {}}"}};
  const auto said = parsed->Render({.turns = turns, .tools = tools, .forms = {}});
  CHECK(said.has_value() || !said.error().message.empty());
}

}  // namespace
}  // namespace moestro

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  moestro::ExamineLanguage(text);
  if (std::hash<std::string_view>()(text) % 100 == 0) moestro::ExamineProcesses(text);
  return 0;
}
