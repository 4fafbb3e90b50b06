// SPDX-License-Identifier: MIT
// Commands on a model with an encoder, from outside: texts become sources and targets.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "base/input_file.h"
#include "base/json.h"
#include "tests/cli/program_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "trace/trace_file.h"

namespace moestro {
namespace {

using testing::Finished;
using testing::NumberAt;
using testing::Program;
using Arguments = std::vector<std::string>;

class EncoderCliTest : public ::testing::Test {
 protected:
  void SetUp() override {
    RunWell({"convert", MOESTRO_SOURCE_DIR "/tests/goldens/switch/tied", "-t", "2", "-o", model_});
    std::ofstream text(text_);
    for (int i = 0; i < 60; ++i) {
      text << "The dog and the cat went down to the river " << i << " times, and it was good.\n";
    }
  }
  Finished Run(Arguments arguments) const {
    return Program(folder_.path(), {.arguments = std::move(arguments)}).Wait();
  }
  std::string RunWell(Arguments arguments) const {
    const Finished run = Run(std::move(arguments));
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return run.out;
  }
  void ExpectError(Arguments arguments, int exit_code, const std::string& part) const {
    const Finished run = Run(std::move(arguments));
    EXPECT_EQ(run.exit_code, exit_code) << run.err;
    EXPECT_TRUE(run.err.contains(part)) << "wanted " << part << "\n" << run.err;
    EXPECT_EQ(run.out, "");
  }
  // A command over the text, in windows of at most 256 tokens.
  Arguments OnText(const std::string& command, const Arguments& more) const {
    Arguments words = {command, model_, "--text", text_, "--ctx", "256", "-t", "2"};
    words.append_range(more);
    return words;
  }
  std::string File(const std::string& name) const { return folder_.File(name); }
  std::string Bytes(const std::string& name) const {
    const auto bytes = ReadSmallFile(File(name), uint64_t{1} << 30);
    EXPECT_TRUE(bytes) << name;
    return bytes.value_or("");
  }

  TempFolder folder_;
  std::string model_ = folder_.File("tied.gguf");
  std::string text_ = folder_.File("text.txt");
};

TEST_F(EncoderCliTest, RoutingIsRecordedLearnedFromAndReplayed) {
  RunWell(OnText("trace", {"-o", File("t.trace")}));
  const auto trace = ReadTrace(File("t.trace"));
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_EQ(trace->info().shape().n_encoder, 2U);
  size_t sources = 0;
  size_t sequences = 0;
  for (size_t t = 0; t < trace->tokens(); ++t) {
    sources += trace->is_source(t);
    sequences += trace->starts_sequence(t);
    if (trace->starts_sequence(t)) {
      EXPECT_TRUE(trace->is_source(t));
    }
  }
  EXPECT_GT(sequences, 2U);
  // Of 100 tokens of a text 90 and an end are the source, 20 and two ends the target.
  EXPECT_GT(sources, trace->tokens() * 7 / 10);
  EXPECT_LT(sources, trace->tokens() * 9 / 10);

  const std::string summary = RunWell({"trace", "--summary", File("t.trace")});
  EXPECT_TRUE(summary.contains("4 layers (2 of them an encoder's)")) << summary;
  const std::string learned =
      RunWell({"profile", "--trace", File("t.trace"), "-o", File("t.paths")});
  EXPECT_TRUE(learned.contains("4 layers of 4 experts")) << learned;
  const std::string replayed = RunWell({"sim", File("t.trace"), "--slots", "50%", "--predictor",
                                        "paths", "--paths", File("t.paths")});
  EXPECT_TRUE(replayed.contains("predict 1 ahead")) << replayed;
  // The model takes what was learned from its own routing.
  RunWell({"run", model_, "-p", "the <extra_id_0> dog", "-n", "4", "--predictor", "paths",
           "--paths", File("t.paths"), "--cache", "50%"});
}

TEST_F(EncoderCliTest, ShardsGiveTheWholeRun) {
  for (const std::string command : {"trace", "profile", "eval"}) {
    Arguments merge = {"merge"};
    for (int i = 1; i <= 2; ++i) {
      const std::string shard = File(command + std::to_string(i));
      RunWell(OnText(command, {"--shard", std::to_string(i) + "/2", "-o", shard}));
      merge.push_back(shard);
    }
    if (command == "eval") {
      merge.push_back("--json");
      const auto whole = Json::Parse(RunWell(OnText("eval", {"--json"})));
      const auto merged = Json::Parse(RunWell(merge));
      ASSERT_TRUE(whole && merged);
      EXPECT_EQ(NumberAt(*whole, "perplexity"), NumberAt(*merged, "perplexity"));
      EXPECT_GT(NumberAt(*whole, "windows"), 2.0);
      continue;
    }
    merge.append_range(Arguments{"-o", File("merged")});
    RunWell(merge);
    RunWell(OnText(command, {"-o", File("whole")}));
    EXPECT_EQ(Bytes("merged"), Bytes("whole")) << command;
    std::filesystem::remove(File("merged"));
    std::filesystem::remove(File("whole"));
  }
}

TEST_F(EncoderCliTest, ExpertsAreFittedAndTheirInputsAddedUp) {
  const std::string sums = RunWell(OnText("imatrix", {"-o", File("t.imatrix")}));
  EXPECT_TRUE(sums.contains("importances")) << sums;
  const std::string fitted = RunWell(OnText("fit", {"--tolerance", "KL=0.01", "--imatrix",
                                                    File("t.imatrix"), "-o", File("fitted.gguf")}));
  EXPECT_TRUE(fitted.contains("of 16 experts at")) << fitted;
  EXPECT_LT(std::filesystem::file_size(File("fitted.gguf")), std::filesystem::file_size(model_));
  const auto loss = Json::Parse(
      RunWell({"eval", File("fitted.gguf"), "--text", text_, "--against", model_, "--json"}));
  ASSERT_TRUE(loss);
  EXPECT_LT(NumberAt(*loss, "kl_mean"), 0.01);
  EXPECT_GT(NumberAt(*loss, "kl_mean"), 0.0);
}

TEST_F(EncoderCliTest, RecordedRoutingStandsInForTheRouters) {
  RunWell({"bench", model_, "-p", "20", "-n", "30", "--cache", "50%", "--record", File("r.trace")});
  RunWell(
      {"bench", model_, "-p", "20", "-n", "30", "--cache", "50%", "--routing", File("r.trace")});
}

// Rows of another stack's layers are no experts.
TEST_F(EncoderCliTest, TracesOfOtherStacksAreNotLearnedFromTogether) {
  Arguments profile = {"profile"};
  for (const uint32_t n_encoder : {0U, 1U, 2U}) {
    Trace trace = *Trace::Create(
        {.model = {.shape = {.n_layer = 4, .n_expert = 4, .n_used = 1, .n_encoder = n_encoder}}});
    std::vector<ExpertId> experts(4, ExpertId{1});
    for (size_t l = n_encoder; l < 4 && n_encoder > 0; ++l) experts[l] = {60000};
    ASSERT_TRUE(
        trace.Add({.phase = Phase::kPrefill, .is_source = n_encoder > 0, .experts = experts}));
    const std::string path = File("t" + std::to_string(n_encoder));
    ASSERT_TRUE(WriteTrace(path, trace));
    profile.append_range(Arguments{"--trace", path});
  }
  profile.append_range(Arguments{"-o", File("no.paths")});
  ExpectError(profile, 1, "1 of its layers are an encoder's, and 0 of the traces before it");
  std::swap(profile[2], profile[6]);
  ExpectError(profile, 1, "an encoder's, and 2 of the traces before it");
}

TEST_F(EncoderCliTest, WhatCannotBeIsNamed) {
  ExpectError({"serve", model_}, 1, "takes no models with an encoder");
  ExpectError(OnText("eval", {"--score-from", "4"}), 2, "all of each target is evaluated");
  ExpectError({"eval", model_, "--text", text_, "--ctx", "6"}, 1, "no token to evaluate");
  ExpectError({"trace", model_, "--random", "3", "-o", File("no.trace")}, 1, "--random 4 or more");
  EXPECT_FALSE(std::filesystem::exists(File("no.trace")));
  std::ofstream(File("empty.txt")) << "";
  ExpectError({"profile", model_, "--text", File("empty.txt"), "-o", File("no.paths")}, 1,
              "no token to learn from");
  EXPECT_FALSE(std::filesystem::exists(File("no.paths")));
}

}  // namespace
}  // namespace moestro
