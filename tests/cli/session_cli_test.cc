// SPDX-License-Identifier: MIT
// `run --session` and `run --explain` from outside.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "tests/cli/program_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

using testing::Finished;
using testing::kDemo;
using testing::Program;

class SessionCliTest : public ::testing::Test {
 protected:
  Finished Run(std::vector<std::string> arguments) const {
    return Program(folder_.path(), {.arguments = std::move(arguments), .input = {}}).Wait();
  }

  TempFolder folder_;
};

// Twenty tokens, saved, and twenty more are the forty of one run.
TEST_F(SessionCliTest, ASavedSessionGoesOnWhereItEnded) {
  const std::string file = (folder_.path() / "story.moeseq").string();
  const auto say = [&](const std::string& prompt, const char* n, bool saves) {
    std::vector<std::string> arguments = {"run", kDemo,    "-p", prompt,     "-n",
                                          n,     "--temp", "0",  "--no-perf"};
    if (saves) arguments.insert(arguments.end(), {"--session", file});
    const auto result = Run(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out.substr(0, result.out.size() - 1);  // without the newline
  };
  const std::string whole = say("Once upon a time", "40", false);
  const std::string first = say("Once upon a time", "20", true);
  EXPECT_EQ(first + say("", "20", true), whole);
}

// It holds a conversation.
TEST_F(SessionCliTest, ASavedSessionIsItsOwners) {
  namespace fs = std::filesystem;
  const std::string file = (folder_.path() / "story.moeseq").string();
  for (int i = 0; i < 2; ++i) {  // a new file, and one that replaces a file that others can read
    const auto result = Run({"run", kDemo, "-p", "Once", "-n", "3", "--session", file});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(fs::status(file).permissions(), fs::perms::owner_read | fs::perms::owner_write);
    fs::permissions(file, fs::perms::others_read, fs::perm_options::add);
  }
}

TEST_F(SessionCliTest, ASessionFileThatIsNoneIsRefusedAndStays) {
  const std::string file = (folder_.path() / "notes.txt").string();
  std::ofstream(file) << "not a sequence, but something that somebody wants to keep";
  const auto result = Run({"run", kDemo, "-p", "Once", "-n", "3", "--session", file});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("notes.txt"), std::string::npos) << result.err;
  std::ifstream in(file);
  const std::string after((std::istreambuf_iterator<char>(in)), {});
  EXPECT_EQ(after, "not a sequence, but something that somebody wants to keep");
}

TEST_F(SessionCliTest, ExplainShowsAPlanForEachLayer) {
  const auto result = Run({"run", kDemo, "-p", "Once", "-n", "3", "--explain", "--cache", "25%"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.err.find("layer   0:"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("layer   5:"), std::string::npos) << result.err;
  EXPECT_EQ(result.err.find("layer   6:"), std::string::npos) << "the demo model has six layers";
  EXPECT_TRUE(result.err.contains("prompts  2 tokens: 0 cached, 2 computed\n")) << result.err;
}

}  // namespace
}  // namespace moestro
