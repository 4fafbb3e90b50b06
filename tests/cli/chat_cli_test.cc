// SPDX-License-Identifier: MIT
// Conversations of `run` from outside: templates of models that do not behave.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/cli/program_testing.h"
#include "tests/support/chat_model_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

using testing::Finished;
using testing::Program;

// Crashes the library for a conversation that ends with "crash", refuses one that ends with
// "refuse".
constexpr const char* kMoody =
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if messages[-1].content == 'crash' %}{{ 1 % 0 }}{% endif %}"
    "{% if messages[-1].content == 'refuse' %}{{ raise_exception('Say it nicely.') }}{% endif %}"
    "assistant:";

// An answer begins with a thought, and a later turn shows the answer without the thought.
constexpr const char* kThinks =
    "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant] <think>{% endif %}";

class ChatCliTest : public ::testing::Test {
 protected:
  void SetUp() override {
    model_ = (folder_.path() / "chat.gguf").string();
    ASSERT_TRUE(WriteChatModel(MOESTRO_SOURCE_DIR "/models/stories-moe-q8_0.gguf", model_, kMoody));
  }
  Finished Run(std::vector<std::string> more, int in_fd = -1) const {
    std::vector<std::string> arguments = {"run", model_,      "-cnv", "-n", "3",      "--ctx",
                                          "512", "--no-perf", "-t",   "1",  "--temp", "0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Program(folder_.path(), {.arguments = std::move(arguments), .in_fd = in_fd}).Wait();
  }
  // Messages that someone types at a terminal.
  Finished Type(const std::string& lines, std::vector<std::string> more = {}) const {
    const int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    EXPECT_EQ(grantpt(terminal), 0);
    EXPECT_EQ(unlockpt(terminal), 0);
    std::string name(64, '\0');
    EXPECT_EQ(ptsname_r(terminal, name.data(), name.size()), 0);
    const int typed = open(name.c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC);
    EXPECT_EQ(write(terminal, lines.data(), lines.size()), static_cast<ssize_t>(lines.size()));
    const Finished finished = Run(std::move(more), typed);
    close(typed);
    close(terminal);
    return finished;
  }

  TempFolder folder_;
  std::string model_;
};

TEST_F(ChatCliTest, AConversationGoesOnAfterWhatItsTemplateDoesNotWrite) {
  const Finished finished = Type("crash\nrefuse\nhello\n/exit\n");
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_TRUE(finished.err.contains("division by zero")) << finished.err;
  EXPECT_TRUE(finished.err.contains("Say it nicely.")) << finished.err;
  // Three places to type at, and three tokens behind the third.
  EXPECT_GT(finished.out.size(), std::string("\n> \n> \n> \n\n> ").size()) << finished.out;
}

TEST_F(ChatCliTest, AnswersAsItWouldWithoutTheOthers) {
  const Finished alone = Type("hello\n/exit\n");
  const Finished after = Type("crash\nhello\n/exit\n");
  EXPECT_EQ(after.out, "\n> " + alone.out);
}

TEST_F(ChatCliTest, TheOnlyMessageFailsWithTheTemplatesWords) {
  const Finished refused = Run({"-p", "refuse"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_TRUE(refused.err.contains("Say it nicely.")) << refused.err;
  const Finished answered = Run({"-p", "hello"});
  EXPECT_EQ(answered.exit_code, 0) << answered.err;
  EXPECT_GT(answered.out.size(), 1U);
}

TEST_F(ChatCliTest, ATemplateThatIsNoneIsReplacedAndNamed) {
  ASSERT_TRUE(WriteChatModel(MOESTRO_SOURCE_DIR "/models/stories-moe-q8_0.gguf", model_, "{% if"));
  const Finished finished = Run({"-p", "hello"});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_TRUE(finished.err.contains("template cannot be used")) << finished.err;
}

// The second prompt parts from the text behind the first one's checkpoint, within the beginning of
// the answer.
TEST_F(ChatCliTest, ExplainSaysWhatALayerWithStatesComputesAgain) {
  ASSERT_TRUE(WriteChatModel(MOESTRO_SOURCE_DIR "/models/stories-moe-q8_0.gguf", model_, kThinks));
  const std::string states = folder_.File("states.gguf");
  const Finished made =
      Program(folder_.path(), {.arguments = {"synth",    "--shape",     "qwen3.6-35b-a3b",
                                             "--layers", "4",           "--experts",
                                             "8",        "--used",      "2",
                                             "--embd",   "256",         "--ff",
                                             "32",       "--shared-ff", "32",
                                             "--vocab",  model_,        "--type",
                                             "Q8_0",     "-o",          states}})
          .Wait();
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const auto explained = [&](const char* messages) { return Type(messages, {"--explain"}).err; };
  const std::string demo = explained("hello\nthe dog\n/exit\n");
  EXPECT_TRUE(demo.contains("prompts ")) << demo;
  EXPECT_FALSE(demo.contains("because layers with states")) << demo;
  model_ = states;
  EXPECT_FALSE(explained("hello\n/exit\n").contains("of them again"));
  const std::string twice = explained("hello\nthe dog\n/exit\n");
  EXPECT_TRUE(twice.contains(" of them again, because layers with states go back")) << twice;
}

}  // namespace
}  // namespace moestro
