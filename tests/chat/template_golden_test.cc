// SPDX-License-Identifier: MIT
// Chat templates of families render as they do where models are trained: the goldens are Python's
// (scripts/template_goldens.py). MOESTRO_TEST_TEMPLATES names one more folder with templates and
// goldens, as published ones that may not lie here.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "chat/chat_types.h"
#include "chat/template.h"
#include "chat/template_traits.h"
#include "tests/chat/golden_files_testing.h"

namespace moestro {
namespace {

const std::string kFolder = MOESTRO_SOURCE_DIR "/tests/chat";

// As the goldens have it: no clock.
std::string TemplateText(const std::filesystem::path& path) {
  constexpr std::string_view kNow = "strftime_now(";
  std::string text = ReadText(path);
  for (size_t at = 0; (at = text.find(kNow, at)) != std::string::npos;) {
    text.replace(at, kNow.size(), "(");
  }
  return text;
}

std::vector<ChatTurn> TurnsOf(JsonView conversation) {
  std::vector<ChatTurn> turns;
  const JsonView all = *conversation.Find("turns");
  for (size_t i = 0; i < all.size(); ++i) {
    const JsonView given = *all.At(i);
    ChatTurn& turn = turns.emplace_back();
    turn.role = TextOf(given, "role");
    turn.content = TextOf(given, "content");
    turn.reasoning = TextOf(given, "reasoning");
    turn.call_id = TextOf(given, "call_id");
    turn.name = TextOf(given, "name");
    const auto calls = given.Find("calls");
    for (size_t c = 0; calls && c < calls->size(); ++c) {
      const JsonView call = *calls->At(c);
      turn.calls.push_back({.id = TextOf(call, "id"),
                            .name = TextOf(call, "name"),
                            .arguments = call.Find("arguments")->Dump()});
    }
  }
  return turns;
}

std::vector<Tool> Tools() {
  std::vector<Tool> tools;
  const Json all = ReadJson(kFolder + "/tools.json");
  for (size_t i = 0; i < all.size(); ++i) {
    tools.push_back({.name = TextOf(*all.At(i), "name"),
                     .description = TextOf(*all.At(i), "description"),
                     .parameters = all.At(i)->Find("parameters")->Dump()});
  }
  return tools;
}

std::vector<std::filesystem::path> TemplatesIn(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "templates")) {
    if (entry.path().extension() == ".jinja") paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  return paths;
}

void ExpectGolden(const std::filesystem::path& path) {
  const std::string text = TemplateText(path);
  const auto parsed = ChatTemplate::Parse(text, "<s>", "</s>");
  ASSERT_TRUE(parsed) << path << parsed.error().message;
  const Json goldens =
      ReadJson(path.parent_path().parent_path() / "goldens" / (path.stem().string() + ".json"));
  const Json conversations = ReadJson(kFolder + "/conversations.json");
  const std::vector<Tool> tools = Tools();
  TemplateForms forms = FindTraits(*parsed, text).forms;
  forms.has_object_arguments = true;
  for (size_t i = 0; i < conversations.size(); ++i) {
    const JsonView conversation = *conversations.At(i);
    const std::string name = TextOf(conversation, "name");
    const std::vector<ChatTurn> turns = TurnsOf(conversation);
    const auto arguments = conversation.Find("arguments");
    const std::string sent = arguments ? arguments->Dump() : "";
    const auto said =
        parsed->Render({.turns = turns,
                        .tools = conversation.Find("tools") ? tools : std::span<const Tool>(),
                        .arguments = sent,
                        .forms = forms});
    const auto golden = goldens.Find(name);
    ASSERT_TRUE(golden) << name << ": make the goldens again (scripts/template_goldens.py)";
    if (const auto refusal = golden->Find("refusal")) {
      ASSERT_FALSE(said) << path.stem() << ", " << name << ": " << *said;
      EXPECT_TRUE(said.error().message.ends_with(refusal->text().value_or("?")))
          << path.stem() << ", " << name << ": " << said.error().message;
      continue;
    }
    ASSERT_TRUE(said) << path.stem() << ", " << name << ": " << said.error().message;
    EXPECT_EQ(*said, golden->text()) << path.stem() << ", " << name;
  }
}

TEST(TemplateGolden, FamiliesRenderAsPythonDoes) {
  const auto paths = TemplatesIn(kFolder);
  EXPECT_GE(paths.size(), 8U);
  for (const auto& path : paths) ExpectGolden(path);
}

TEST(TemplateGolden, TemplatesOfAnotherFolderDoToo) {
  const char* folder = std::getenv("MOESTRO_TEST_TEMPLATES");  // NOLINT(concurrency-mt-unsafe)
  if (folder == nullptr) GTEST_SKIP() << "MOESTRO_TEST_TEMPLATES is not set";
  for (const auto& path : TemplatesIn(folder)) ExpectGolden(path);
}

}  // namespace
}  // namespace moestro
