// SPDX-License-Identifier: MIT
// `eval --sweep -o` and `--quality` from outside.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "tests/cli/program_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

namespace fs = std::filesystem;
using testing::Finished;
using testing::Program;

constexpr std::string_view kTale =
    "Once upon a time, there was a little dog named Max. Max liked to run in the park with his "
    "friend Lily. One day they found a big red ball under a tree. \"Look!\" said Lily. \"Can we "
    "play with it?\" Max wagged his tail and barked. They played until the sun went down and then "
    "they went home, tired and happy. The next day a boy came to the park and looked for his ball. "
    "Lily gave it back and the boy smiled. They all became good friends. Then they went to the "
    "shop and bought an ice cream for everyone, and the boy said that it was the best day of all.";

class QualityTest : public ::testing::Test {
 protected:
  QualityTest() : model_(folder_.File("m.gguf")) {
    fs::copy_file(MOESTRO_SOURCE_DIR "/models/stories-moe-q8_0.gguf", model_);
    std::ofstream(folder_.File("tale.txt"), std::ios::binary) << kTale;
  }

  Finished Run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"-t", "1"});
    return Program(folder_.path(), {.arguments = std::move(arguments)}).Wait();
  }
  Finished Sweep(const std::string& output) const {
    return Run({"eval", model_, "--text", folder_.File("tale.txt"), "--cache", "30%", "--sweep",
                "prefer-resident=0.05,0.4", "-o", output});
  }
  Finished Generate(const std::string& kl, std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments = {"run", model_, "--quality", kl, "-p", "Once upon"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Run(std::move(arguments));
  }
  std::string Stored() const { return model_ + ".sweep.json"; }

  TempFolder folder_;
  std::string model_;
};

TEST_F(QualityTest, TheWishPicksFromTheStoredSweepAndIsCheckedWhileRunning) {
  const Finished swept = Sweep(Stored());
  ASSERT_EQ(swept.exit_code, 0) << swept.err;
  const auto stored = Json::Parse(ReadAll(Stored()));
  ASSERT_TRUE(stored);
  EXPECT_EQ(stored->Find("settings")->size(), 3U) << "the exact run, too";
  EXPECT_EQ(stored->Find("settings")->At(0)->Find("exact")->number(), 1.0);

  const Finished exact = Generate("0", {"--cache", "30%", "-n", "4"});
  EXPECT_EQ(exact.exit_code, 0) << exact.err;
  EXPECT_TRUE(exact.err.starts_with("quality  exact: ")) << exact.err;
  EXPECT_EQ(exact.err.find("an estimate"), std::string::npos) << exact.err;
  EXPECT_NE(exact.err.find("nothing to check"), std::string::npos) << exact.err;

  // Nobody can foresee which is the fastest: here not the exact run.
  std::string slow_exact = ReadAll(Stored());
  const std::string key = "\"decode_tps\": ";
  const size_t at = slow_exact.find(key, slow_exact.find("\"exact\": 1")) + key.size();
  slow_exact.replace(at, slow_exact.find(',', at) - at, "0");
  std::ofstream(folder_.File("slow.json"), std::ios::binary) << slow_exact;
  const Finished lossy = Generate("1000", {"--sweep-file", folder_.File("slow.json"), "--cache",
                                           "50%", "-n", "140", "--ignore-eos", "--temp", "0"});
  EXPECT_EQ(lossy.exit_code, 0) << lossy.err;
  EXPECT_TRUE(lossy.err.starts_with("quality  prefer-resident=0.")) << lossy.err;
  EXPECT_NE(lossy.err.find("an estimate: measured with"), std::string::npos) << lossy.err;
  EXPECT_NE(lossy.err.find("one-step KL "), std::string::npos) << lossy.err;
  EXPECT_NE(lossy.err.find("each 128th token, 1 in all"), std::string::npos) << lossy.err;
}

TEST_F(QualityTest, WhatCannotBeIsSaid) {
  const auto expect = [](const Finished& run, int exit_code, const std::string& part) {
    EXPECT_EQ(run.exit_code, exit_code) << run.err;
    EXPECT_NE(run.err.find(part), std::string::npos) << "wanted " << part << "\n" << run.err;
    EXPECT_EQ(run.out, "");
  };
  expect(Generate("0.1"), 1, "moestro eval " + model_ + " --text FILE");
  expect(Generate("-1"), 2, "no KL");
  expect(Generate("much"), 2, "'much'");
  expect(Generate("nan"), 2, "'nan'");
  expect(Generate("0.1", {"--t1", "0.5"}), 2, "--t1");
  expect(Run({"run", model_, "-p", "x", "--sweep-file", "x.json"}), 2, "--quality");
  expect(Run({"eval", model_, "--text", "t", "--sweep", "cache=20%,30%", "-o", "x"}), 2,
         "one budget");
  std::ofstream(Stored()) << "{}";
  expect(Generate("0.1"), 1, "'format'");
  std::ofstream(Stored()) << R"({"format": "moestro sweep", "version": 1, "model": {"name": "o",
    "fingerprint": "7", "layers": 2, "experts": 4, "used": 1}, "budget": {"ram_bytes": 1,
    "expert_bytes": 1}, "settings": [{"knobs": {}, "exact": 1, "kl_mean": 0, "decode_tps": 1,
    "bytes_per_token": 1, "perplexity": 2, "slots": 1, "low_slots": 0}]})";
  expect(Generate("0.1"), 1, "made for o (");
}

}  // namespace
}  // namespace moestro
