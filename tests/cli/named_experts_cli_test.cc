// SPDX-License-Identifier: MIT
// Families whose heads choose blocks, or whose rows attend to pools and have experts that a table
// names, from outside: what inspect and plan say, low copies, drafts, traces, damaged tables.
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "tests/cli/program_testing.h"
#include "tests/support/damage_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

using Arguments = std::vector<std::string>;
using testing::Finished;
using testing::kDemo;
using testing::NumberAt;
using testing::Program;

class FamilyProgram : public ::testing::TestWithParam<std::string> {
 protected:
  static TinySpec SpecOf(const std::string& arch) {
    return {
        .arch = arch, .type = "Q8_0", .layers = 5, .experts = 16, .used = 4, .vocab_path = kDemo};
  }
  Finished Run(Arguments arguments) const {
    return Program(folder_.path(), {.arguments = std::move(arguments)}).Wait();
  }
  Json Report(Arguments arguments) const {
    arguments.emplace_back("--json");
    const Finished run = Run(std::move(arguments));
    EXPECT_EQ(run.exit_code, 0) << run.err;
    auto json = Json::Parse(run.out);
    EXPECT_TRUE(json) << run.out;
    return json ? *std::move(json) : Json::Object();
  }
  // A text of 60 tokens behind a prompt with more positions than rows attend to.
  Finished Write(const Arguments& more) const {
    Arguments arguments = {"run", model_,  "-p",  kPrompt, "-n", "60",      "--seed",
                           "1",   "--ctx", "256", "-t",    "2",  "--cache", "40%"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Run(std::move(arguments));
  }

  static constexpr const char* kPrompt =
      "Once upon a time there was a little dog. The dog ran and ran, and the dog saw a red ball. "
      "The dog ran and ran, and the dog saw a red ball. The dog ran and ran, and the";
  TempFolder folder_;
  std::string model_ = WriteTinyModel(folder_.path(), SpecOf(GetParam()));
};

INSTANTIATE_TEST_SUITE_P(Newest, FamilyProgram, ::testing::Values("minimax-m3", "deepseek4"),
                         [](const auto& one) { return CaseName(one.param); });

TEST_P(FamilyProgram, LowCopiesAreMadeAndUsed) {
  const std::string low = folder_.File("low.gguf");
  const Finished made = Run({"quantize", model_, "--experts", "q2_k,down=q4_0", "-o", low});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const Arguments bench = {"bench", model_, "-p", "40",    "-n",  "30",      "-r",
                           "1",     "-t",   "2",  "--ctx", "128", "--cache", "40%"};
  const auto with = [&](const Arguments& more) {
    Arguments arguments = bench;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Report(std::move(arguments));
  };
  const Json lossy = with({"--low", low, "--t1", "0.2", "--t2", "1"});
  EXPECT_GT(NumberAt(lossy, "low"), 10.0) << lossy.Dump();
  const Finished plain = Write({"--temp", "0"});
  const Finished exact = Write({"--temp", "0", "--low", low, "--t1", "1", "--t2", "1"});
  EXPECT_EQ(exact.exit_code, 0) << exact.err;
  EXPECT_EQ(exact.out, plain.out);
}

TEST_P(FamilyProgram, DraftsChangeNoText) {
  for (const char* temp : {"0", "0.8"}) {
    const Finished plain = Write({"--temp", temp});
    ASSERT_EQ(plain.exit_code, 0) << plain.err;
    for (const char* draft : {"little", "ngram"}) {
      const Finished drafted = Write({"--temp", temp, "--draft", draft});
      EXPECT_EQ(drafted.exit_code, 0) << drafted.err;
      EXPECT_EQ(drafted.out, plain.out) << draft << " at " << temp;
      const bool is_little = std::string(draft) == "little";  // n-grams may find nothing
      EXPECT_TRUE(!is_little || drafted.err.contains("drafted tokens taken")) << drafted.err;
    }
  }
}

TEST_P(FamilyProgram, InspectAndPlanDescribeIt) {
  const Json json = Report({"inspect", model_});
  const bool has_pools = GetParam() == "deepseek4";
  EXPECT_EQ(NumberAt(json, "token_layers"), has_pools ? 1.0 : 0.0);
  const JsonView mixers = *json.Find("mixers");
  ASSERT_EQ(mixers.size(), has_pools ? 3U : 2U);
  const JsonView choosing = *mixers.At(1);
  const std::string text = Run({"inspect", model_}).out;
  if (has_pools) {
    EXPECT_EQ(NumberAt(choosing, "pool"), 4.0);
    EXPECT_EQ(NumberAt(choosing, "chosen"), 6.0);
    EXPECT_TRUE(
        text.contains("2 layers (1 and 3): 4 heads that share a key of 128, over 24 "
                      "positions and pools of 4, 6 of which 16 indexer heads choose"))
        << text;
    EXPECT_TRUE(text.contains("pools of 128\n")) << text;
    EXPECT_TRUE(text.contains("in the first layer with experts a table names")) << text;
  } else {
    EXPECT_EQ(NumberAt(choosing, "pool"), 8.0);
    EXPECT_EQ(NumberAt(choosing, "chosen"), 3.0);
    EXPECT_EQ(NumberAt(choosing, "choices"), 2.0);
    EXPECT_TRUE(
        text.contains("4 layers (1 to 4): 4 heads, 2 for keys and values, of 64, over 3 "
                      "blocks of 8 positions that 2 indexer heads choose each"))
        << text;
  }
  const Json plan = Report({"plan", model_});
  EXPECT_EQ(plan.Find("architecture")->text(), GetParam()) << plan.Dump();
  EXPECT_EQ(plan.Find("engine")->text(), "native");
}

// A trace of a file gives the simulator the number of layers whose experts tokens name; no other
// number in its place is taken.
TEST_P(FamilyProgram, ATraceIsRecordedAndReplayed) {
  const std::string trace = folder_.File("t.trace");
  const Finished recorded = Run(
      {"trace", model_, "--random", "40", "-o", trace, "-t", "2", "--cache", "40%", "--summary"});
  ASSERT_EQ(recorded.exit_code, 0) << recorded.err;
  const bool is_named = GetParam() == "deepseek4";
  EXPECT_EQ(recorded.out.contains("tokens name the experts of the first 1 layer"), is_named)
      << recorded.out;
  const Json replayed = Report({"sim", trace, "--slots", "40"});
  EXPECT_GT(NumberAt(*replayed.At(0), "requests"), 100.0);
  if (!is_named) return;
  std::fstream file(trace, std::ios::binary | std::ios::in | std::ios::out);
  constexpr std::streamoff kNamed = 32;  // docs/trace-format.md
  file.seekp(kNamed);
  file.put('\x09');
  ASSERT_TRUE(file.flush());
  const Finished refused = Run({"sim", trace, "--slots", "40"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_TRUE(refused.err.contains(trace)) << refused.err;
  EXPECT_TRUE(refused.err.contains("layers whose experts tokens name = 9")) << refused.err;
}

// A table of a file that names what no token can have: every command names the place.
TEST(NamedExpertsProgram, ADamagedTableIsAnErrorInEveryCommand) {
  const TempFolder folder;
  const std::string model = WriteTinyModel(
      folder.path(), {.arch = "deepseek4", .experts = 16, .used = 4, .vocab_path = kDemo});
  const std::string tensor = "blk.0.ffn_gate_tid2eid.weight";
  WriteNumbers(model, tensor, 4 * 7 + 2, {-1});
  for (const Arguments& arguments : {Arguments{"logits", model, "--tokens", "1,2,3"},
                                     Arguments{"run", model, "-p", "Once", "-n", "3"},
                                     Arguments{"bench", model, "-p", "8", "-n", "3"},
                                     Arguments{"serve", model, "--port", "0"}}) {
    SCOPED_TRACE(arguments.front());
    const Finished run = Program(folder.path(), {.arguments = arguments}).Wait();
    EXPECT_EQ(run.exit_code, 1);
    EXPECT_TRUE(run.err.contains(model)) << run.err;
    EXPECT_TRUE(run.err.contains("'" + tensor + "' names expert -1 of 16 for token 7")) << run.err;
    const bool serves = arguments.front() == "serve";  // names its address before it loads
    EXPECT_TRUE(serves || run.out.empty()) << run.out;
  }
}

}  // namespace
}  // namespace moestro
