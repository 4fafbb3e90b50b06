// SPDX-License-Identifier: MIT
// Any bytes as a chat template: parsing and rendering must return, whatever becomes of the
// processes that do it.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "chat/template.h"
#include "chat/template_spelling.h"

namespace moestro {
namespace {

void Examine(std::string_view text) {
  SpellForLibrary(text);
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
  moestro::Examine({reinterpret_cast<const char*>(data), size});
  return 0;
}
