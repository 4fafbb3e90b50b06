// SPDX-License-Identifier: MIT
// `moestro profile` from outside.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "tests/cli/program_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

namespace fs = std::filesystem;
using testing::Finished;
using testing::kDemo;
using testing::NumberAt;
using testing::Program;

const std::string kTraces = MOESTRO_SOURCE_DIR "/bench/traces/";

constexpr std::string_view kStory =
    "Once upon a time there was a little dog. The dog liked to play with a red ball in the park. "
    "One day the ball was gone. The dog was sad and looked under the tree, behind the house and "
    "in the garden. Then a girl came and said: here is your ball! The dog was happy again.\n";

class ProfileTest : public ::testing::Test {
 protected:
  Finished Run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "profile");
    return Program(folder_.path(), {.arguments = std::move(arguments)}).Wait();
  }
  Json RunJson(std::vector<std::string> arguments) const {
    arguments.emplace_back("--json");
    const Finished run = Run(std::move(arguments));
    EXPECT_EQ(run.exit_code, 0) << run.err;
    auto json = Json::Parse(run.out);
    EXPECT_TRUE(json) << run.out;
    return json ? *std::move(json) : Json::Object();
  }
  void ExpectError(std::vector<std::string> arguments, int exit_code,
                   const std::vector<std::string>& parts) const {
    const Finished run = Run(std::move(arguments));
    EXPECT_EQ(run.exit_code, exit_code) << run.err;
    for (const std::string& part : parts) {
      EXPECT_NE(run.err.find(part), std::string::npos) << "wanted " << part << "\n" << run.err;
    }
  }
  std::string Story() const {
    std::ofstream(folder_.File("story.txt")) << kStory;
    return folder_.File("story.txt");
  }
  TempFolder folder_;
};

// The program does not write to a folder that was not named.
TEST_F(ProfileTest, NormsLieBesideTheModelOnlyIfThePathsDo) {
  const std::string model = folder_.File("m.gguf");
  std::filesystem::copy_file(kDemo, model);
  RunJson({model, "--text", Story(), "-o", folder_.File("p.paths")});
  EXPECT_FALSE(std::filesystem::exists(model + ".norms"));
  RunJson({model, "--text", Story(), "-o", folder_.File("p.paths"), "--norms-output",
           folder_.File("n.norms")});
  EXPECT_TRUE(std::filesystem::exists(folder_.File("n.norms")));
  EXPECT_FALSE(std::filesystem::exists(model + ".norms"));
  const Json json = RunJson({model, "--text", Story()});
  EXPECT_TRUE(std::filesystem::exists(model + ".norms"));
  EXPECT_EQ(json.Find("norms")->text(), model + ".norms");
  ExpectError({"--trace", kTraces + "demo-stories.trace", "-o", folder_.File("p"), "--norms-output",
               folder_.File("q")},
              2, {"--norms-output needs --text"});
  // Refused before the text is read, which may take an hour.
  ExpectError({model, "--engine", "hosted", "--text", folder_.File("none.txt"), "--norms-output",
               folder_.File("q")},
              1, {"--norms-output needs the native engine"});
}

TEST_F(ProfileTest, LearnsATextAndWritesBesideTheModel) {
  const std::string model = folder_.File("model.gguf");
  fs::create_symlink(kDemo, model);
  const Finished run = Run({model, "--text", Story(), "-t", "1"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_TRUE(fs::is_regular_file(model + ".paths"));
  for (const char* part : {"learned", "6 layers of 16 experts, 4 used", "keys", "model.gguf.paths",
                           "recall", "popularity"}) {
    EXPECT_NE(run.out.find(part), std::string::npos) << part << "\n" << run.out;
  }
}

TEST_F(ProfileTest, CountsTokensAndObeysTheLimit) {
  const std::string paths = folder_.File("a.paths");
  const Json json = RunJson({kDemo, "--text", Story(), "-n", "30", "-o", paths, "-t", "1"});
  EXPECT_EQ(NumberAt(json, "tokens"), 30.0);
  EXPECT_EQ(NumberAt(json, "held_out_tokens"), 6.0);
  EXPECT_EQ(NumberAt(json, "file_bytes"), static_cast<double>(fs::file_size(paths)));
  EXPECT_GT(NumberAt(json, "keys"), 16.0);
}

// The recorded traces are the same wherever this runs, and so is what they teach.
TEST_F(ProfileTest, PathsBeatPopularityOnRecordedRouting) {
  const std::string paths = folder_.File("a.paths");
  const Json json = RunJson({"--trace", kTraces + "olmoe-299.trace", "-o", paths});
  EXPECT_EQ(NumberAt(json, "tokens"), 299.0);
  EXPECT_GT(NumberAt(json, "recall_paths"), NumberAt(json, "recall_popular") + 0.15);
  const Json demo = RunJson({"--trace", kTraces + "demo-stories.trace", "--trace",
                             kTraces + "demo-code.trace", "-o", paths});
  EXPECT_EQ(NumberAt(demo, "tokens"), 1000.0);
}

TEST_F(ProfileTest, MistakesAreNamed) {
  const std::string paths = folder_.File("a.paths");
  const std::string trace = kTraces + "olmoe-299.trace";
  ExpectError({kDemo}, 2, {"--text"});
  ExpectError({"--text", Story(), "-o", paths}, 2, {"model"});
  ExpectError({"--trace", trace}, 2, {"-o"});
  ExpectError({kDemo, "--text", Story(), "--trace", trace}, 2, {"either"});
  ExpectError({kDemo, "--text", folder_.File("none.txt"), "-o", paths}, 1, {"none.txt"});
  ExpectError({kDemo, "--trace", trace, "-o", paths}, 1, {trace, "16 layers", "6 layers"});
  ExpectError({"--trace", trace, "--trace", kTraces + "demo-code.trace", "-o", paths}, 1,
              {"demo-code.trace", "one model"});
  ExpectError({"--trace", Story(), "-o", paths}, 1, {"story.txt", "not a trace"});
  ExpectError({"--trace", trace, "-o", folder_.path().string()}, 1, {"not a file"});
  EXPECT_FALSE(fs::exists(paths));
}

}  // namespace
}  // namespace moestro
