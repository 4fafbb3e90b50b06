// SPDX-License-Identifier: MIT
// What `bench` measures after a context that was made up.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "tests/cli/program_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

using testing::Finished;
using testing::Program;

class BenchCliTest : public ::testing::Test {
 protected:
  BenchCliTest()
      : model_(WriteTinyModel(folder_.path(), {.type = "Q4_0", .ff = 256, .context = 8192})) {}

  // Six tokens after a prompt of four.
  Finished Run(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"bench", model_, "-p", "4", "-n", "6", "-t", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Program(folder_.path(), {.arguments = std::move(arguments)}).Wait();
  }
  Json ParseOne(std::vector<std::string> more) const {
    more.emplace_back("--json");
    const Finished run = Run(more);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    auto json = Json::Parse(run.out);
    EXPECT_TRUE(json) << run.out;
    return json ? *std::move(json) : Json::Object();
  }
  static double Number(const Json& json, const char* key) {
    const auto value = json.Find(key);
    EXPECT_TRUE(value) << key;
    return value ? value->number().value_or(-1.0) : -1.0;
  }

  TempFolder folder_;
  std::string model_;
};

// What is read from holes is read from nowhere.
TEST_F(BenchCliTest, ASparseFileHasNoSpeed) {
  const std::string sparse = folder_.File("sparse.gguf");
  const Finished made =
      Program(folder_.path(),
              {.arguments = {"synth", "--shape", "olmoe-1b-7b", "--layers", "2", "--experts", "8",
                             "--used", "2", "--vocab-size", "300", "--sparse", "-o", sparse}})
          .Wait();
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const Finished bench =
      Program(folder_.path(), {.arguments = {"bench", sparse, "-p", "4", "-n", "2"}}).Wait();
  EXPECT_EQ(bench.exit_code, 1);
  EXPECT_TRUE(bench.err.contains("its experts are holes")) << bench.err;
  EXPECT_EQ(bench.out, "");
  const Finished trace =
      Program(folder_.path(),
              {.arguments = {"trace", sparse, "--random", "4", "-o", folder_.File("a.trace")}})
          .Wait();
  EXPECT_EQ(trace.exit_code, 0) << trace.err;
}

TEST_F(BenchCliTest, DepthIsLookedBackAtAndNotComputed) {
  const Json shallow = ParseOne({});
  const Json deep = ParseOne({"--depth", "6000"});
  EXPECT_EQ(Number(shallow, "depth"), 0.0);
  EXPECT_EQ(Number(shallow, "ctx"), 4096.0);
  EXPECT_EQ(Number(deep, "depth"), 6000.0);
  EXPECT_EQ(Number(deep, "ctx"), 6010.0);  // as much as is needed
  EXPECT_EQ(Number(deep, "prefill_tokens"), 4.0);
  EXPECT_EQ(Number(deep, "decode_tokens"), 6.0);
  // Two layers, keys and values of four heads of 64 halves each; other experts may be asked for.
  const double looked_back = 6.0 * 6000.0 * 2 * 2 * 4 * 64 * 2;
  EXPECT_GT(Number(deep, "touched_bytes_decode"), looked_back);
  EXPECT_LT(Number(shallow, "touched_bytes_decode"), looked_back);
  EXPECT_NE(deep.Find("logits_hash")->text(), shallow.Find("logits_hash")->text());
  // A seed gives the same context again, whatever the slots.
  const Json again = ParseOne({"--depth", "6000", "--cache", "50%"});
  EXPECT_EQ(again.Find("logits_hash")->text(), deep.Find("logits_hash")->text());
  const Json other = ParseOne({"--depth", "6000", "--seed", "2"});
  EXPECT_NE(other.Find("logits_hash")->text(), deep.Find("logits_hash")->text());
}

TEST_F(BenchCliTest, DepthWorksForManySequencesAndDrafts) {
  const Json rows = ParseOne({"--depth", "5000", "--sequences", "3"});
  EXPECT_EQ(Number(rows, "decode_tokens"), 18.0);
  const Json drafts = ParseOne({"--depth", "100", "--draft", "little:2"});
  EXPECT_EQ(Number(drafts, "decode_tokens"), 6.0);
  // Too few steps for a mean.
  EXPECT_EQ(Number(drafts, "plain_token_seconds"), 0.0);
  EXPECT_EQ(Number(drafts, "drafted_token_seconds"), 0.0);
  const Finished text = Run({"--depth", "100"});
  EXPECT_NE(text.out.find("depth    after 100 positions with made-up keys and values\n"),
            std::string::npos)
      << text.out;
}

TEST_F(BenchCliTest, AContextThatIsTooSmallIsRefused) {
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--depth", "6000", "--ctx", "4096"},
        {"--depth", "8183"},  // the model has 8192
        {"--depth", "4294967295"},
        {"--warmup", "9000"}}) {
    const Finished run = Run(more);
    EXPECT_EQ(run.exit_code, 1);
    EXPECT_NE(run.err.find("do not fit a context of"), std::string::npos) << run.err;
  }
  EXPECT_EQ(Run({"--depth", "-1"}).exit_code, 2);
}

// What bench says of its own run, `sim` says again of the trace: same slots, routing and costs.
TEST_F(BenchCliTest, ARecordedRunIsReplayedAsItWasPredicted) {
  const std::string model = WriteTinyModel(
      folder_.path(),
      {.arch = "qwen3moe", .type = "Q4_K_M", .layers = 8, .experts = 16, .used = 4, .ff = 256});
  const std::string trace = (folder_.path() / "run.trace").string();
  const Finished run =
      Program(folder_.path(), {.arguments = {"bench", model, "--cache", "50%", "-t", "1", "-p", "4",
                                             "-n", "12", "--record", trace, "--json"}})
          .Wait();
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto said = Json::Parse(run.out);
  ASSERT_TRUE(said) << run.out;
  EXPECT_GT(Number(*said, "sim_tps"), 0.0);
  EXPECT_GT(Number(*said, "cost_compute_seconds"), 0.0);
  EXPECT_GE(Number(*said, "cost_compute_beside"), 1.0);
  const std::string policy = said->Find("policy")->text().value_or("");
  const Finished again =
      Program(folder_.path(), {.arguments = {"sim", trace, "--recorded-slots", "--policy", policy,
                                             "--predictor", "next-router", "--json"}})
          .Wait();
  ASSERT_EQ(again.exit_code, 0) << again.err;
  const auto lines = Json::Parse(again.out);
  ASSERT_TRUE(lines) << again.out;
  ASSERT_TRUE(lines->At(0));
  const Json line = lines->At(0)->Copy();
  EXPECT_EQ(Number(line, "decode_tps"), Number(*said, "sim_tps"));
  EXPECT_EQ(Number(line, "slots"), Number(*said, "slots"));
  EXPECT_EQ(Number(line, "tokens"), 12.0);
  // What is given counts before what was recorded.
  const Finished other =
      Program(folder_.path(), {.arguments = {"sim", trace, "--slots", "100%", "--compute", "1000"}})
          .Wait();
  EXPECT_TRUE(other.out.contains(" 1.00 tok/s")) << other.out << other.err;
}

TEST_F(BenchCliTest, ARecordingIsOfOneSequenceFromCold) {
  const std::string trace = (folder_.path() / "run.trace").string();
  for (const std::vector<std::string>& wrong : {std::vector<std::string>{"--sequences", "2"},
                                                {"--warmup", "5"},
                                                {"--preload"},
                                                {"--predictor", "paths"}}) {
    std::vector<std::string> arguments = wrong;
    arguments.insert(arguments.end(), {"--record", trace});
    const Finished run = Run(arguments);
    EXPECT_EQ(run.exit_code, 2) << wrong.front() << run.err;
    EXPECT_TRUE(run.err.contains("--record")) << run.err;
  }
  EXPECT_FALSE(std::filesystem::exists(trace));
  const Finished none =
      Program(folder_.path(),
              {.arguments = {"sim", MOESTRO_SOURCE_DIR "/bench/traces/olmoe-299.trace",
                             "--recorded-slots"}})
          .Wait();
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_TRUE(none.err.contains("how many slots")) << none.err;
}

}  // namespace
}  // namespace moestro
