// SPDX-License-Identifier: MIT
// Published chat templates with conversations as clients send them, against what Python's jinja2
// makes of them. The templates do not lie in this repository (tests/chat/README.md says where they
// are looked for); a run without them says so.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "api/api_request.h"
#include "base/json.h"
#include "base/text.h"
#include "chat/chat_format.h"
#include "tests/chat/golden_files_testing.h"

namespace moestro {
namespace {

std::filesystem::path PublishedFolder() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread has begun
  const char* folder = std::getenv("MOESTRO_PUBLISHED_TEMPLATES");
  return folder != nullptr ? folder : MOESTRO_SOURCE_DIR "/../shared/data/templates";
}

void ReplaceAll(std::string& text, std::string_view from, std::string_view to) {
  if (from.empty()) return;
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
}

// Today as a template asked for it.
std::string Today(const std::string& form) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::ostringstream text;
  text << std::put_time(&local, form.c_str());
  return std::move(text).str();
}

// How a prompt compares with its golden.
enum class Verdict : uint8_t {
  kEqual,
  kFitted,    // equal after what docs/requests.md says is done before a template sees it
  kOwnWords,  // the template has no place for what the conversation has
  kRefused,   // the template refuses it for jinja2, too
  kDiffers,
  kFails,  // here alone
};

class PublishedTemplate {
 public:
  PublishedTemplate(const std::string& name, JsonView golden, const Json& conversations)
      : name_(name), golden_(golden), conversations_(conversations) {
    model_.template_text = ReadText(PublishedFolder() / (name + ".jinja"));
    model_.bos = TextOf(golden, "bos");
    model_.eos = TextOf(golden, "eos");
  }

  void Run(std::map<Verdict, int>& counts) {
    const ChatFormat format = ChatFormat::Make(model_);
    for (size_t i = 0; i < conversations_.size(); ++i) {
      const JsonView conversation = *conversations_.At(i);
      const std::string name = TextOf(conversation, "name");
      const auto expected = golden_.Find("goldens")->Find(name);
      if (!expected) {
        ADD_FAILURE() << name_ << " has no golden for " << name;
        continue;
      }
      ++counts[Compare(format, conversation, *expected)];
    }
  }

 private:
  Result<std::string> Prompt(const ChatFormat& format, JsonView conversation) const {
    auto request = ParseApiRequest(ApiKind::kChat, conversation.Dump(), 1000, ApiPurpose::kInput);
    if (!request) return Fail(Errc::kInvalidRequest, "{}", request.error().message);
    TRY(const RenderedChat chat, format.Render(request->chat, {}));
    std::string prompt = chat.prompt;
    for (const auto& [form, said] : golden_.Find("dates")->members()) {
      ReplaceAll(prompt, Today(std::string(form)), said.text().value_or(""));
    }
    return prompt;
  }

  Verdict Compare(const ChatFormat& format, JsonView conversation, JsonView expected) const {
    const auto prompt = Prompt(format, conversation);
    const std::string name = TextOf(conversation, "name");
    const bool has_golden = expected.Find("prompt") || expected.Find("sha256");
    if (!prompt) {
      if (!has_golden) return Verdict::kRefused;
      ADD_FAILURE() << name_ << ", " << name << ": " << prompt.error().message;
      return Verdict::kFails;
    }
    if (IsSaid(*prompt, expected, "prompt")) return Verdict::kEqual;
    if (IsSaid(*prompt, expected, "fitted")) return Verdict::kFitted;
    if (!has_golden || SaysInOwnWords(conversation)) return Verdict::kOwnWords;
    ADD_FAILURE() << name_ << ", " << name << ":\n"
                  << Differing(*prompt, TextOf(expected, "prompt"));
    return Verdict::kDiffers;
  }

  // A long prompt is kept as its beginning and its length in characters.
  static bool IsSaid(const std::string& prompt, JsonView expected, std::string_view key) {
    const auto text = expected.Find(key);
    if (text && text->kind() == JsonKind::kText) return prompt == *text->text();
    const JsonView where = text ? *text : expected;
    const auto length = where.Find("length");
    const auto is_first = [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; };
    return length && length->integer() == std::ranges::count_if(prompt, is_first) &&
           prompt.starts_with(TextOf(where, "head"));
  }
  // Both texts from a little before the first place where they part.
  static std::string Differing(std::string_view said, std::string_view golden) {
    const auto parted = std::ranges::mismatch(said, golden);
    const auto same = static_cast<size_t>(parted.in1 - said.begin());
    const size_t begin = same < 40 ? 0 : same - 40;
    return Format("said:   {}\ngolden: {}", said.substr(begin, 200), golden.substr(begin, 200));
  }

  bool Knows(std::string_view trait) const {
    const auto known = golden_.Find("traits")->Find(trait);
    return known && known->boolean().value_or(false);
  }
  bool SaysInOwnWords(JsonView conversation) const {
    const auto tools = conversation.Find("tools");
    if (tools && !Knows("tools")) return true;
    const std::string text = conversation.Dump();
    if (text.contains("\"tool_calls\"") && !Knows("calls")) return true;
    if (text.contains("\"role\":\"tool\"") && !Knows("results")) return true;
    return text.contains("\"reasoning_content\"") &&
           !golden_.Find("forms")->Find("thoughts")->text();
  }

  std::string name_;
  JsonView golden_;
  const Json& conversations_;
  ChatModel model_;
};

TEST(PublishedTemplates, AreSaidAsPythonSaysThem) {
  const std::filesystem::path folder = PublishedFolder();
  if (!std::filesystem::exists(folder / "goldens.json")) {
    GTEST_SKIP() << "49 published templates with 34 conversations are left out: there is no "
                 << folder;
  }
  const Json goldens = ReadJson(folder / "goldens.json");
  const Json conversations = ReadJson(folder / "conversations.json");
  std::map<Verdict, int> counts;
  for (const auto& [name, golden] : goldens.Find("templates")->members()) {
    PublishedTemplate(std::string(name), golden, conversations).Run(counts);
  }
  std::cout << "equal " << counts[Verdict::kEqual] << ", fitted " << counts[Verdict::kFitted]
            << ", in words of ours " << counts[Verdict::kOwnWords] << ", refused by both "
            << counts[Verdict::kRefused] << ", differ " << counts[Verdict::kDiffers] << ", fail "
            << counts[Verdict::kFails] << "\n";
}

}  // namespace
}  // namespace moestro
