// SPDX-License-Identifier: MIT
// A server that is ended and started again in the middle of ten conversations: each goes on with
// its new tokens alone, whichever engine has the model and whatever its layers remember.
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/number.h"
#include "tests/serve/serve_testing.h"
#include "tests/support/llama_zoo_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro::testing {
namespace {

struct ServedKind {
  const char* name;
  const char* engine;
  const char* arch;
};

// An answer begins with a thought, which later turns leave out: states and windows have to go back
// to before the answer.
constexpr const char* kTemplate =
    "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant] <think>{% endif %}";
// Tokens of "[assistant] <think>" at most.
constexpr int64_t kAnswersBeginning = 12;
constexpr int kConversations = 10;

class ServeRestartTest : public ServeTest, public ::testing::WithParamInterface<ServedKind> {
 protected:
  using Messages = std::vector<std::pair<std::string, std::string>>;
  struct Usage {
    int64_t prompt = 0;
    int64_t cached = 0;
  };

  void SetUp() override {
    const ServedKind& kind = GetParam();
    model_ = std::string(kind.engine) == "native"
                 ? WriteTinyModel(folder_.path(), {.arch = kind.arch, .vocab_path = kDemo})
                 : WriteZooModel(folder_.path(), kind.arch, {.context = 512, .vocab_path = kDemo});
    std::ofstream(folder_.File("template.jinja")) << kTemplate;
  }
  void Start() {
    Serve({model_, "--engine", GetParam().engine, "--ctx", "400", "--chat-template",
           folder_.File("template.jinja"), "--cache-ram", "64M", "--parallel", "32"});
  }
  static Messages TalkOf(int number) {
    std::string words;
    for (int i = 0; i < 30; ++i) words += "the little dog " + std::to_string(number) + " ";
    return {{"system", words}, {"user", "one day a big red ball"}};
  }
  Usage Say(const Messages& messages) const {
    Json list = Json::Array();
    for (const auto& [role, content] : messages)
      list.Push(std::move(Json::Object().Set("role", role).Set("content", content)));
    Json body = Json::Object();
    body.Set("max_tokens", 8).Set("temperature", 0).Set("messages", std::move(list));
    const std::string reply = Ask(port_, Post("/v1/chat/completions", body.Dump()));
    const auto json = Json::Parse(reply.substr(reply.find("\r\n\r\n") + 4));
    const auto usage = json ? json->Find("usage") : std::nullopt;
    if (!usage) {
      ADD_FAILURE() << reply;
      return {};
    }
    return {.prompt = usage->Find("prompt_tokens")->integer().value_or(-1),
            .cached =
                usage->Find("prompt_tokens_details")->Find("cached_tokens")->integer().value_or(0)};
  }
  int64_t ComputedTokens() const {
    const std::string text = Ask(port_, Get("/metrics"));
    const std::string key = "\nmoestro_prompt_tokens_total ";
    const size_t at = text.find(key);
    if (at == std::string::npos) return -1;
    const size_t begin = at + key.size();
    return static_cast<int64_t>(
        ParseNumber<double>(text.substr(begin, text.find('\n', begin) - begin)).value_or(-1.0));
  }

  std::string model_;
};

TEST_P(ServeRestartTest, TenConversationsGoOnWithTheirNewTokensAlone) {
  std::vector<Messages> talks;
  std::vector<Usage> before;
  Start();
  for (int i = 0; i < kConversations; ++i) {
    talks.push_back(TalkOf(i));
    before.push_back(Say(talks.back()));
    EXPECT_GT(before.back().prompt, 100);
  }
  const auto go_on = [&](const char* answer, const char* next) {
    int64_t most = 0;
    for (size_t i = 0; i < talks.size(); ++i) {
      talks[i].emplace_back("assistant", answer);
      talks[i].emplace_back("user", next);
      const Usage now = Say(talks[i]);
      EXPECT_GE(now.cached, before[i].prompt - kAnswersBeginning) << "conversation " << i;
      most += now.prompt - before[i].prompt + kAnswersBeginning;
      before[i] = now;
    }
    return most;
  };
  go_on("a short answer", "and then the cat said");
  EXPECT_EQ(End().exit_code, 0);
  for (int restart = 0; restart < 2; ++restart) {
    Start();
    const int64_t most = go_on("yes", "and what did the dog say to the cat");
    EXPECT_LE(ComputedTokens(), most);
    EXPECT_GT(ComputedTokens(), 0);
    EXPECT_EQ(End().exit_code, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, ServeRestartTest,
                         ::testing::Values(ServedKind{"NativeAttention", "native", "olmoe"},
                                           ServedKind{"NativeWindows", "native", "gemma4"},
                                           ServedKind{"NativeStates", "native", "qwen3next"},
                                           ServedKind{"HostedAttention", "hosted", "dots1"},
                                           ServedKind{"HostedWindows", "hosted", "cohere2moe"},
                                           ServedKind{"HostedStates", "hosted", "qwen35moe"}),
                         [](const auto& about) { return std::string(about.param.name); });

}  // namespace
}  // namespace moestro::testing
