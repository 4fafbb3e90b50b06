// SPDX-License-Identifier: MIT
// --kv-type from outside.
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "tests/cli/program_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

using testing::Finished;
using testing::kDemo;
using testing::Program;

class KvTypeCliTest : public ::testing::Test {
 protected:
  Finished Run(std::vector<std::string> arguments) const {
    return Program(folder_.path(), {.arguments = std::move(arguments), .input = {}}).Wait();
  }
  Json Report(std::vector<std::string> arguments) const {
    arguments.emplace_back("--json");
    const Finished run = Run(std::move(arguments));
    EXPECT_EQ(run.exit_code, 0) << run.err;
    auto json = Json::Parse(run.out);
    EXPECT_TRUE(json) << run.out;
    return json ? *std::move(json) : Json::Object();
  }
  static double Number(const Json& json, const char* key) {
    const auto value = json.Find(key);
    EXPECT_TRUE(value && value->number()) << key;
    return value ? value->number().value_or(-1.0) : -1.0;
  }

  TempFolder folder_;
};

TEST_F(KvTypeCliTest, PlansAndReportsKnowIt) {
  const Json halves = Report({"inspect", kDemo});
  const Json inspected = Report({"inspect", kDemo, "--kv-type", "q8_0"});
  EXPECT_EQ(halves.Find("kv_type")->text(), "f16");
  EXPECT_EQ(inspected.Find("kv_type")->text(), "q8_0");
  // 34 bytes for 32 values, not 64.
  EXPECT_EQ(Number(inspected, "kv_bytes"), Number(halves, "kv_bytes") * 34 / 64);

  const std::vector<std::string> bench = {"bench", kDemo, "-p",      "8",  "-n",
                                          "4",     "-r",  "1",       "-t", "1",
                                          "--ctx", "128", "--depth", "16", "--kv-type"};
  const auto with = [&](const char* type) {
    std::vector<std::string> arguments = bench;
    arguments.emplace_back(type);
    return Report(arguments);
  };
  const Json measured = with("q8_0");
  EXPECT_EQ(measured.Find("kv_type")->text(), "q8_0");
  EXPECT_EQ(Number(measured, "kv_bytes"), Number(with("f16"), "kv_bytes") * 34 / 64);

  const Finished run = Run({"run", kDemo, "-p", "Once", "-n", "3", "--kv-type", "q8_0"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.err.find("keys and values in q8_0"), std::string::npos) << run.err;
}

TEST_F(KvTypeCliTest, WhatItCostsIsMeasuredAgainstHalves) {
  const std::string text = folder_.File("text.txt");
  std::ofstream(text) << "Once upon a time there was a little dog who lived in a red house.";
  const Json json =
      Report({"eval", kDemo, "--text", text, "--against", "exact", "--kv-type", "q8_0", "-t", "1"});
  EXPECT_GT(Number(json, "kl_mean"), 0.0);
  EXPECT_LT(Number(json, "kl_mean"), 0.01);  // a good file of 5 bits, docs/quality.md
  EXPECT_EQ(json.Find("kv_type")->text(), "q8_0");
}

TEST_F(KvTypeCliTest, WhatCannotWorkSaysWhy) {
  const auto refuses = [&](std::vector<std::string> arguments, int exit_code, const char* why) {
    const Finished run = Run(std::move(arguments));
    EXPECT_EQ(run.exit_code, exit_code) << run.err;
    EXPECT_NE(run.err.find(why), std::string::npos) << run.err;
    EXPECT_EQ(run.out, "");
  };
  refuses({"run", kDemo, "-p", "a", "--kv-type", "q4_0"}, 2, "f16, q8_0");
  const std::string odd = WriteTinyModel(folder_.path(), {.arch = "qwen3moe", .head_dim = 48});
  refuses({"logits", odd, "--tokens", "1", "--kv-type", "q8_0"}, 1, "no multiple of 32");
  refuses({"inspect", odd, "--kv-type", "q8_0"}, 1, "no multiple of 32");
}

}  // namespace
}  // namespace moestro
