// SPDX-License-Identifier: MIT
// docs/calls.md has a row for every family and every style of calls, and published templates, where
// they are there, are told as it says. They may not lie here (README.md).
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "chat/answer_style.h"
#include "chat/call_style.h"
#include "chat/chat_format.h"
#include "model/families/families.h"

namespace moestro {
namespace {

std::string FileText(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string_view Trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

// The cells of the table's rows; "\|" is no end of a cell.
std::vector<std::vector<std::string>> RowsOf(const std::string& text) {
  std::vector<std::vector<std::string>> rows;
  for (size_t at = text.find("\n| "); at != std::string::npos; at = text.find("\n| ", at + 1)) {
    const std::string line = text.substr(at + 2, text.find('\n', at + 1) - at - 2);
    std::vector<std::string>& cells = rows.emplace_back(1);
    for (size_t i = 0; i < line.size(); ++i) {
      const bool ends_cell = line[i] == '|' && line[i - 1] != '\\';
      if (ends_cell) {
        cells.emplace_back();
      } else {
        cells.back() += line[i];
      }
    }
    cells.pop_back();  // behind the last mark
    for (std::string& cell : cells) cell = Trimmed(cell);
  }
  return rows;
}

enum Column : uint8_t { kFamily, kModels, kThoughts, kRead, kStyle, kHeld, kHistory, kColumns };

std::vector<std::vector<std::string>> DocumentedRows() {
  auto rows = RowsOf(FileText(MOESTRO_SOURCE_DIR "/docs/calls.md"));
  std::erase_if(rows, [](const auto& row) { return row[kFamily].starts_with("-"); });
  if (!rows.empty()) rows.erase(rows.begin());  // the head
  return rows;
}

TEST(CallFamilies, EveryFamilyHasARowWithoutEmptyCells) {
  const auto rows = DocumentedRows();
  for (const Family& family : Families()) {
    const std::string name = "`" + std::string(family.name) + "`";
    EXPECT_TRUE(std::ranges::any_of(rows, [&](const auto& row) {
      return row[kFamily].contains(name);
    })) << name;
  }
  for (const auto& row : rows) {
    ASSERT_EQ(row.size(), size_t{kColumns}) << row[kFamily] << row[kModels];
    for (const std::string& cell : row) EXPECT_FALSE(cell.empty()) << row[kFamily] << row[kModels];
    EXPECT_TRUE(row[kHistory] == "template" || row[kHistory] == "we") << row[kModels];
  }
}

TEST(CallFamilies, EveryStyleHasARow) {
  std::set<std::string> documented;
  for (const auto& row : DocumentedRows()) documented.insert(row[kStyle]);
  std::set<std::string> known;
  for (const std::string_view title : CallStyleTitles()) known.emplace(title);
  EXPECT_EQ(documented, known);
}

// Published templates, and the rows of theirs.
struct Published {
  const char* file;
  const char* style;
  const char* thoughts;  // what begins them
};
constexpr Published kPublished[] = {
    {"mistralai-Mistral-Nemo-Instruct-2407", "a list of JSON", ""},
    {"Mistral-Small-3.2-24B-Instruct-2506", "names and JSON", ""},
    {"mistralai-Ministral-3-14B-Reasoning-2512", "names and JSON", "[THINK]"},
    {"meta-llama-Llama-3.1-8B-Instruct", "bare JSON", ""},
    {"Qwen-Qwen2.5-7B-Instruct", "tagged JSON", ""},
    {"Qwen-Qwen3-0.6B", "tagged JSON", "<think>"},
    {"Qwen3-Coder", "parameter tags", ""},
    {"Qwen3.5-4B", "parameter tags", "<think>"},
    {"openai-gpt-oss-120b", "channels", ""},
    {"glm_4_5", "key and value tags", "<think>"},
    {"GLM-4.6", "key and value tags", "<think>"},
    {"GLM-4.7-Flash", "key and value tags", "<think>"},
    {"GLM-5.2", "key and value tags", "<think>"},
    {"upstage-Solar-Open-100B", "ids, names and JSON", "<|think|>"},
    {"LFM2-8B-A1B", "Python calls", ""},
    {"LFM2.5-Instruct", "Python calls", "<think>"},
    {"ibm-granite-granite-4.0", "tagged JSON", ""},
    {"ibm-granite-granite-3.3-2B-Instruct", "a list of JSON", "<think>"},
    {"poolside-Laguna-S-2.1", "key and value tags", "<think>"},
    {"poolside-Laguna-XS.2", "key and value tags", "<think>"},
    {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "parameter tags", "<think>"},
    {"google-gemma-4-31B-it", "marked strings", "<|channel>thought"},
    {"google-gemma-4-31B-it-interleaved", "marked strings", "<|channel>thought"},
    {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "fenced JSON", "<think>"},
    {"deepseek-ai-DeepSeek-V3.1", "fenced JSON", "<think>"},
    {"Kimi-K2-Instruct", "numbered names and JSON", ""},
    {"Kimi-K2-Thinking", "numbered names and JSON", "<think>"},
    {"moonshotai-Kimi-K2", "numbered names and JSON", ""},
    {"GigaChat3-10B-A1.8B", "JSON behind a mark", ""},
    {"GigaChat3.1-10B-A1.8B", "JSON behind a mark", ""},
    {"deepseek-ai-DeepSeek-V3.2", "DSML", "<think>"},
    {"deepseek-ai-DeepSeek-V4", "DSML", "<think>"},
    {"deepseek-ai-DeepSeek-V4-Flash-0731", "DSML", "<think>"},
    {"MiniMax-M3", "nested tags", "<mm:think>"},
    {"StepFun3.5-Flash", "parameter tags", "<think>"},
    {"tencent-Hy3", "suffixed key and value tags", "<think:opensource>"},
    {"Cohere2MoE", "a list of actions", "<|START_THINKING|>"},
    {"CohereForAI-c4ai-command-r7b-12-2024-tool_use", "a list of actions", "<|START_THINKING|>"},
};

std::filesystem::path TemplatesWithCalls() {
  return MOESTRO_SOURCE_DIR "/../shared/data/templates";
}

TEST(CallFamilies, PublishedTemplatesAreToldByTheirMarks) {
  const std::filesystem::path folder = TemplatesWithCalls();
  if (!std::filesystem::exists(folder)) {
    GTEST_SKIP() << std::size(kPublished) << " published templates are not here";
  }
  for (const Published& published : kPublished) {
    const AnswerStyle style =
        FindStyle(FileText(folder / (std::string(published.file) + ".jinja")));
    EXPECT_EQ(style.calls.title, published.style) << published.file;
    EXPECT_EQ(style.reasoning_begin, published.thoughts) << published.file;
    EXPECT_FALSE(style.is_guess) << published.file;
  }
}

// A call of an earlier turn and its result are in the prompt, with an id of the client's own, and
// the answer's calls are held and read in the style that the table says.
TEST(CallFamilies, PublishedTemplatesSayEarlierCalls) {
  if (!std::filesystem::exists(TemplatesWithCalls())) GTEST_SKIP() << "they are not here";
  ChatInput input;
  const auto add = [&input](std::string role, std::string content) -> ChatTurn& {
    ChatTurn& turn = input.turns.emplace_back();
    turn.role = std::move(role);
    turn.content = std::move(content);
    return turn;
  };
  add("user", "Rain?");
  add("assistant", "")
      .calls.push_back(
          {.id = "call_7x8y9", .name = "look_there", .arguments = R"({"place": "Ravenna"})"});
  add("tool", "sun over it").call_id = "call_7x8y9";
  input.tools.push_back(
      {.name = "look_there",
       .description = "Looks.",
       .parameters = R"({"type":"object","properties":{"place":{"type":"string"}}})"});
  for (const Published& published : kPublished) {
    const std::string text =
        FileText(TemplatesWithCalls() / (std::string(published.file) + ".jinja"));
    const ChatFormat format = ChatFormat::Make({.template_text = text, .bos = "", .eos = ""});
    const auto chat = format.Render(input, {});
    ASSERT_TRUE(chat) << published.file << chat.error().message;
    const std::string& prompt = chat->prompt;
    const size_t described = prompt.find("look_there");
    const size_t called = prompt.rfind("look_there", prompt.find("Ravenna"));
    EXPECT_TRUE(prompt.contains("Ravenna") && prompt.contains("sun over it")) << published.file;
    EXPECT_TRUE(described != std::string::npos && called > described) << published.file;
    EXPECT_FALSE(chat->grammar.empty()) << published.file;
    const bool is_told = chat->style.calls.title == published.style ||
                         chat->style.calls.title == PlainCallStyle().title;
    EXPECT_TRUE(is_told) << published.file << ": " << chat->style.calls.title;
    if (chat->style.calls.numbered_begin.empty()) continue;
    EXPECT_TRUE(prompt.contains("functions.look_there:0")) << published.file << prompt;
  }
}

}  // namespace
}  // namespace moestro
