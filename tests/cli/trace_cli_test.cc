// SPDX-License-Identifier: MIT
// Traces of two passes from outside: recorded, replayed, and put in place of routers.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "tests/cli/program_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

using testing::Finished;
using testing::kDemo;
using testing::Program;

class TraceCliTest : public ::testing::Test {
 protected:
  Finished Run(std::vector<std::string> arguments) const {
    return Program(folder_.path(), {.arguments = std::move(arguments), .input = {}}).Wait();
  }
  // Of one run of the demo model on random tokens.
  Finished Record(const std::string& path, const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"trace", kDemo, "--random", "40",      "-o",
                                          path,    "-t",  "2",        "--cache", "30%"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Run(std::move(arguments));
  }
  void ExpectError(std::vector<std::string> arguments, int exit_code,
                   const std::string& part) const {
    const Finished run = Run(std::move(arguments));
    EXPECT_EQ(run.exit_code, exit_code) << part;
    EXPECT_TRUE(run.err.contains(part)) << "wanted " << part << "\n" << run.err;
  }
  std::string Path(const char* name) const { return (folder_.path() / name).string(); }

  TempFolder folder_;
};

TEST_F(TraceCliTest, TwoPassesAreRecordedAndReplayed) {
  const std::string both = Path("both.trace");
  const Finished recorded = Record(both, {"--little", "half", "--summary"});
  ASSERT_EQ(recorded.exit_code, 0) << recorded.err;
  EXPECT_TRUE(recorded.out.contains("little       a pass with 2 experts")) << recorded.out;

  const Finished text = Run({"sim", both, "--little", "half", "--gamma", "0.2"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_TRUE(text.out.contains("of 40 tokens decoded again")) << text.out;
  const Finished replayed = Run({"sim", both, "--little", "2", "--gamma", "0", "--little-misses",
                                 "drop", "--prefetch", "0", "--json"});
  ASSERT_EQ(replayed.exit_code, 0) << replayed.err;
  const auto lines = Json::Parse(replayed.out);
  ASSERT_TRUE(lines);
  EXPECT_EQ(lines->At(0)->Find("little_kept")->number(), 40.0);
  EXPECT_EQ(lines->At(0)->Find("fallback_ratio")->number(), 0.0);
  EXPECT_EQ(lines->At(0)->Find("misses")->number(), 0.0);

  const Finished sweep = Run({"sim", both, "--sweep", "--little", "half"});
  EXPECT_EQ(sweep.exit_code, 0) << sweep.err;
  EXPECT_FALSE(sweep.out.contains("belady"));

  const std::vector<std::string> bench = {"bench",   kDemo, "--routing", both,       "-p",
                                          "4",       "-n",  "10",        "-t",       "2",
                                          "--cache", "30%", "--json",    "--little", "half"};
  const Finished measured = Run(bench);
  ASSERT_EQ(measured.exit_code, 0) << measured.err;
  const auto report = Json::Parse(measured.out);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->Find("little_tokens")->number(), 10.0);
}

TEST_F(TraceCliTest, WhatATraceDoesNotSayIsRefused) {
  const std::string plain = Path("plain.trace");
  const std::string one = Path("one.trace");
  ASSERT_EQ(Record(plain, {}).exit_code, 0);
  ASSERT_EQ(Record(one, {"--little", "1"}).exit_code, 0);
  ExpectError({"sim", plain, "--little", "half"}, 2, "holds no little pass");
  ExpectError({"sim", one, "--little", "half"}, 2, "is of 1 experts, not of 2");
  ExpectError({"sim", one, "--gamma", "0.5"}, 2, "--little");
  ExpectError({"sim", one, "--little", "1", "--tune", "lru"}, 2, "--little");
  ExpectError({"sim", one, "--little", "1", "--policy", "belady"}, 2, "belady");
  ExpectError({"bench", kDemo, "--routing", plain, "--little", "half"}, 1, "does not say");
  ExpectError({"bench", kDemo, "--routing", one, "--little", "half"}, 1, "of 1 experts, not 2");
  ExpectError({"bench", kDemo, "--routing", one, "--little", "1", "--sequences", "2"}, 2,
              "--sequences");
  ExpectError({"trace", kDemo, "--random", "9", "-o", one, "--little", "1", "--gamma", "0.5"}, 2,
              "--gamma");
  ExpectError(
      {"trace", kDemo, "--random", "9", "-o", one, "--little", "1", "--little-misses", "drop"}, 2,
      "--little-misses");
  ExpectError({"trace", kDemo, "--random", "9", "-o", one, "--little", "4"}, 2, "1 to 3");
  ExpectError({"profile", kDemo, "--text", kDemo, "--little", "1"}, 2, "--little");
}

}  // namespace
}  // namespace moestro
