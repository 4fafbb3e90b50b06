// SPDX-License-Identifier: MIT
// Conversations with a model whose layers have states or windows, through the server: a later
// prompt goes on from what is kept, and the answer is that of a prompt computed from its beginning.
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "tests/serve/serve_testing.h"

namespace moestro::testing {
namespace {

// An answer begins with a thought, and a later turn shows the answer without the thought.
constexpr const char* kTemplate =
    "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant] <think>{% endif %}";
// "[assistant]" is no longer than this in tokens.
constexpr int64_t kAnswersBeginning = 8;

using Messages = std::vector<std::pair<std::string, std::string>>;

struct Answer {
  std::string text;
  int64_t prompt = 0;  // tokens
  int64_t cached = 0;
  int64_t recomputed = 0;
};

int64_t NumberAt(std::optional<JsonView> in, const char* key) {
  const auto found = in ? in->Find(key) : std::nullopt;
  return found ? found->integer().value_or(-1) : 0;
}

class ServeStatesTest : public ServeTest {
 protected:
  void ServeStates(std::vector<std::string> arguments = {}) {
    arguments.insert(arguments.end(), {"--ctx", "1024"});
    ServeShape({"qwen3.6-35b-a3b", "--layers", "4", "--shared-ff", "32"}, std::move(arguments));
  }
  // `shape`: what follows --shape.
  void ServeShape(const std::vector<std::string>& shape, std::vector<std::string> arguments) {
    const std::string model = folder_.File("synthetic.gguf");
    std::vector<std::string> made_by = {"synth", "--experts", "8",   "--used",  "2",   "--embd",
                                        "256",   "--ff",      "32",  "--vocab", kDemo, "--type",
                                        "Q8_0",  "-o",        model, "--shape"};
    made_by.insert(made_by.end(), shape.begin(), shape.end());
    const Finished made = Program(folder_.path(), {.arguments = made_by}).Wait();
    ASSERT_EQ(made.exit_code, 0) << made.err;
    const std::string path = folder_.File("template.jinja");
    std::ofstream(path) << kTemplate;
    arguments.insert(arguments.begin(), model);
    arguments.insert(arguments.end(), {"--chat-template", path});
    Serve(std::move(arguments));
  }
  Answer Say(const Messages& messages, bool from_kept = true) const {
    Json list = Json::Array();
    for (const auto& [role, content] : messages) {
      list.Push(std::move(Json::Object().Set("role", role).Set("content", content)));
    }
    Json body = Json::Object();
    body.Set("max_tokens", 6).Set("temperature", 0).Set("cache_prompt", from_kept);
    body.Set("messages", std::move(list));
    const std::string reply = Ask(port_, Post("/v1/chat/completions", body.Dump()));
    const auto json = Json::Parse(reply.substr(reply.find("\r\n\r\n") + 4));
    if (!reply.starts_with("HTTP/1.1 200") || !json) {
      ADD_FAILURE() << reply;
      return {};
    }
    const auto usage = json->Find("usage");
    const auto details = usage->Find("prompt_tokens_details");
    return {.text = json->Find("choices")->At(0)->Find("message")->Dump(),
            .prompt = NumberAt(usage, "prompt_tokens"),
            .cached = NumberAt(details, "cached_tokens"),
            .recomputed = NumberAt(details, "recomputed_tokens")};
  }
  // That of a prompt which is computed from its beginning is the same.
  Answer SayBothWays(const Messages& messages) const {
    Answer kept = Say(messages);
    const Answer whole = Say(messages, false);
    EXPECT_EQ(whole.cached, 0);
    EXPECT_EQ(kept.prompt, whole.prompt);
    EXPECT_EQ(kept.text, whole.text);
    return kept;
  }
};

std::string Words(int n, const std::string& word) {
  std::string words;
  for (int i = 0; i < n; ++i) words += word + " ";
  return words;
}

const std::string kSystem = Words(100, "the little dog");

TEST_F(ServeStatesTest, ALaterTurnComputesWhatIsNew) {
  ServeStates();
  Messages talk = {{"system", kSystem}, {"user", "one day a big red ball"}};
  Answer before = SayBothWays(talk);
  EXPECT_EQ(before.cached, 0);
  EXPECT_GT(before.prompt, 200);
  for (int turn = 0; turn < 4; ++turn) {
    talk.emplace_back("assistant", "a short answer");
    talk.emplace_back("user", "and then the cat said " + std::to_string(turn));
    const Answer now = SayBothWays(talk);
    EXPECT_GE(now.cached, before.prompt - 2 * kAnswersBeginning) << "turn " << turn;
    EXPECT_LE(now.recomputed, kAnswersBeginning) << "turn " << turn;
    before = now;
  }
  EXPECT_EQ(End().exit_code, 0);
}

// Cells of its windows are given back with so long a context (memory/recent_cells.h), and the talk
// is longer than a window of 1,024 positions.
TEST_F(ServeStatesTest, SevenTurnsWithWindowsComputeWhatIsNew) {
  ServeShape({"gemma-4-26b-a4b", "--layers", "6", "--heads", "8"}, {"--ctx", "16384"});
  Messages talk = {{"system", Words(400, "the little dog")}, {"user", "one day a big red ball"}};
  Answer before = SayBothWays(talk);
  EXPECT_GT(before.prompt, 1200);
  for (int turn = 1; turn < 7; ++turn) {
    talk.emplace_back("assistant", "a short answer");
    talk.emplace_back("user", Words(20, "and then the cat said"));
    // A whole prompt is computed for each third turn, which the others rest on.
    const Answer now = turn % 3 == 0 ? SayBothWays(talk) : Say(talk);
    EXPECT_GE(now.cached, before.prompt - 2 * kAnswersBeginning) << "turn " << turn;
    EXPECT_LE(now.recomputed, kAnswersBeginning) << "turn " << turn;
    before = now;
  }
  EXPECT_EQ(End().exit_code, 0);
}

TEST_F(ServeStatesTest, AnEditedMessageAndAnotherTalkGoOnFromCheckpoints) {
  ServeStates();
  Messages talk = {{"system", kSystem}, {"user", Words(30, "one day")}};
  const Answer first = SayBothWays(talk);
  talk.emplace_back("assistant", "a short answer");
  talk.emplace_back("user", Words(30, "and then"));
  SayBothWays(talk);
  talk.back().second = "tell it otherwise";
  EXPECT_GE(SayBothWays(talk).cached, first.prompt - 2 * kAnswersBeginning);
  const Answer other = SayBothWays({{"system", kSystem}, {"user", "what did mom say"}});
  EXPECT_GE(other.cached, 200);
  EXPECT_LE(other.recomputed, kAnswersBeginning);
  EXPECT_EQ(End().exit_code, 0);
}

// Without checkpoints on the way a long prompt that parts in its middle begins again.
TEST_F(ServeStatesTest, CheckpointsOnTheWayAreAsFarApartAsAsked) {
  ServeStates({"--checkpoint-every", "64"});
  const std::string shared = Words(80, "a red ball");
  const Answer first = SayBothWays({{"user", shared + Words(40, "one")}});
  const Answer second = SayBothWays({{"user", shared + Words(40, "two")}});
  ASSERT_GT(first.prompt, 240);
  EXPECT_GE(second.cached, 128);
  EXPECT_EQ(second.cached % 64, 0);
  EXPECT_LE(second.recomputed, 64);
  EXPECT_EQ(End().exit_code, 0);
}

}  // namespace
}  // namespace moestro::testing
