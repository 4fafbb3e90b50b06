// SPDX-License-Identifier: MIT
// `run --beams` from outside.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/number.h"
#include "base/text.h"
#include "tests/cli/program_testing.h"
#include "tests/support/sanitized_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

using testing::Finished;
using testing::kDemo;
using testing::Program;

class BeamCliTest : public ::testing::Test {
 protected:
  Finished Run(std::vector<std::string> arguments, const std::string& prompt = "Once upon a time") {
    arguments.insert(arguments.begin(), {"run", kDemo, "-p", prompt, "-t", "1"});
    return Program(folder_.path(), {.arguments = std::move(arguments)}).Wait();
  }
  void ExpectError(std::vector<std::string> arguments, int exit_code, const std::string& part) {
    const Finished run = Run(std::move(arguments));
    EXPECT_EQ(run.exit_code, exit_code) << run.err;
    EXPECT_NE(run.err.find(part), std::string::npos) << "wanted " << part << "\n" << run.err;
    EXPECT_EQ(run.out, "");
  }

  TempFolder folder_;
};

TEST_F(BeamCliTest, OneBeamIsTheLikeliestText) {
  const Finished greedy = Run({"-n", "25", "--temp", "0"});
  const Finished beam = Run({"-n", "25", "--beams", "1", "--temp", "0", "--seed", "3"});
  EXPECT_EQ(beam.exit_code, 0) << beam.err;
  EXPECT_EQ(beam.out, greedy.out);
}

TEST_F(BeamCliTest, PrintsTheBestInEveryForm) {
  const Finished json = Run({"-n", "12", "--beams", "4", "--n-best", "3", "--json"});
  ASSERT_EQ(json.exit_code, 0) << json.err;
  const auto object = Json::Parse(json.out);
  ASSERT_TRUE(object) << json.out;
  EXPECT_EQ(object->Find("prompt_tokens")->size(), 5U);
  const auto beams = object->Find("beams");
  ASSERT_EQ(beams->size(), 3U);
  double last = 0.0;
  for (size_t i = 0; i < 3; ++i) {
    const auto beam = beams->At(i);
    const auto tokens = static_cast<double>(beam->Find("tokens")->size());
    const double score = *beam->Find("score")->number();
    EXPECT_NEAR(score * tokens, *beam->Find("log_prob")->number(), 1e-9);
    EXPECT_LE(score, last);
    last = score;
  }
  const std::string best(*beams->At(0)->Find("text")->text());
  const Finished text = Run({"-n", "12", "--beams", "4"});
  EXPECT_EQ(text.out, "Once upon a time" + best + "\n");
  const Finished several = Run({"-n", "12", "--beams", "4", "--n-best", "2", "--no-perf"});
  EXPECT_NE(several.out.find(best), std::string::npos) << several.out;
  EXPECT_NE(several.out.find("score -"), std::string::npos) << several.out;
  EXPECT_EQ(several.err, "");
}

TEST_F(BeamCliTest, TheEndTokenCountsButIsNotText) {
  // A story that is over: the likeliest continuation is its end.
  const std::string story = "One day a dog ran home. They lived happily ever after. The end.";
  const Finished run = Run({"--beams", "2", "-n", "4", "--json"}, story);
  const auto object = Json::Parse(run.out);
  ASSERT_TRUE(object) << run.out << run.err;
  const auto best = object->Find("beams")->At(0);
  EXPECT_EQ(best->Find("tokens")->size(), 1U) << run.out;
  EXPECT_EQ(best->Find("text")->text(), "");
  EXPECT_EQ(best->Find("score")->number(), best->Find("log_prob")->number());
  EXPECT_EQ(Run({"--beams", "2", "-n", "4"}, story).out, story + "\n");
}

// Four beams are four rows of a step, which share its experts.
TEST_F(BeamCliTest, ExplainShowsTheRowsOfTheLastStep) {
  const Finished run = Run({"-n", "6", "--beams", "4", "--explain"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.err.find("layer   5:"), std::string::npos) << run.err;
  EXPECT_NE(run.err.find(" 3:0."), std::string::npos) << run.err;
  EXPECT_EQ(run.err.find(" 4:0."), std::string::npos) << run.err;
  EXPECT_EQ(run.out, Run({"-n", "6", "--beams", "4"}).out);
}

TEST_F(BeamCliTest, TheBudgetHoldsAndWhatFitsIsSaid) {
  ExpectError({"--beams", "0"}, 2, "--beams");
  ExpectError({"--beams", "17"}, 2, "--beams");
  ExpectError({"--beams", "4", "--n-best", "5"}, 2, "there are 4 beams");
  ExpectError({"--beams", "4", "--length-penalty", "nan"}, 2, "no number");
  ExpectError({"--n-best", "2"}, 2, "--beams");
  ExpectError({"--beams", "2", "--top-k", "5"}, 2, "--top-k");
  ExpectError({"--beams", "2", "--temp", "0.5"}, 2, "--temp");
  ExpectError({"--beams", "2", "--grammar", "root ::= [a-z]"}, 2, "--grammar");
  ExpectError({"--beams", "2", "-n", "0"}, 2, "-n 0");
  ExpectError({"--beams", "2", "-cnv"}, 2, "--beams");
  ExpectError({"--beams", "2", "--quality", "0.1"}, 2, "--quality");
  if (kIsSanitized) return;  // which takes memory of its own
  const Finished fits = Run({"--beams", "16", "-n", "30", "--ram", "120M"});
  EXPECT_EQ(fits.exit_code, 0) << fits.err;
  EXPECT_LE(fits.peak_bytes, 120 * kMiB);
  // With what four need and a little more, there is no room for sixteen.
  const Finished four = Run({"--beams", "4", "--ram", "1M"});
  constexpr std::string_view kSmallest = "that works is --ram ";
  const size_t at = four.err.find(kSmallest);
  ASSERT_NE(at, std::string::npos) << four.err;
  EXPECT_NE(four.err.find("fewer beams do not fit either"), std::string::npos) << four.err;
  const int ram = std::stoi(four.err.substr(at + kSmallest.size())) + 2;
  ExpectError({"--beams", "16", "--ram", Format("{}M", ram)}, 1, " beams of 252 tokens would fit");
}

}  // namespace
}  // namespace moestro
