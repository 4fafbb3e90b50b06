// SPDX-License-Identifier: MIT
// `moestro quantize` and `moestro imatrix` from outside.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "base/number.h"
#include "tests/cli/program_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

using testing::Finished;
using testing::kDemo;
using testing::Program;

class QuantizeCliTest : public ::testing::Test {
 protected:
  Finished Run(std::vector<std::string> arguments, const char* command = "quantize") const {
    arguments.insert(arguments.begin(), {command, "-t", "2"});
    return Program(folder_.path(), {.arguments = std::move(arguments)}).Wait();
  }
  void ExpectError(std::vector<std::string> arguments, int exit_code,
                   const std::string& part) const {
    const Finished run = Run(std::move(arguments));
    EXPECT_EQ(run.exit_code, exit_code) << run.err;
    EXPECT_TRUE(run.err.starts_with("moestro: ")) << run.err;
    EXPECT_NE(run.err.find(part), std::string::npos) << "wanted " << part << "\n" << run.err;
    EXPECT_EQ(run.out, "");
  }
  TempFolder folder_;
};

TEST_F(QuantizeCliTest, TheDemoAtTwoAndThreeBits) {
  const std::string low = folder_.File("low.gguf");
  const Finished run = Run({kDemo, "--experts", "gate=q2_k,up=Q2_K,down=q3_k", "-o", low});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.out.find("6 layers of 16 experts, gate=q2_K,up=q2_K,down=q3_K"), std::string::npos)
      << run.out;
  EXPECT_EQ(run.err, "");
  // 16 experts of 84 bytes for 256 values twice and 110 once, in 6 layers; and a header.
  const auto weights = uint64_t{6} * 16 * 256 * (84 + 84 + 110);
  EXPECT_GT(std::filesystem::file_size(low), weights);
  EXPECT_LT(std::filesystem::file_size(low), weights + 64 * kKiB);
  ExpectError({kDemo, "--experts", "q2_k", "-o", low}, 1, "--force");
  EXPECT_EQ(Run({kDemo, "--experts", "q2_k", "-o", low, "--force"}).exit_code, 0);
  EXPECT_LT(std::filesystem::file_size(low), weights);
}

TEST_F(QuantizeCliTest, MistakesAreNamed) {
  const std::string low = folder_.File("low.gguf");
  ExpectError({kDemo, "-o", low}, 2, "--experts");
  ExpectError({kDemo, "--experts", "q2_k"}, 2, "--output");
  ExpectError({"--experts", "q2_k", "-o", low}, 2, "MODEL");
  ExpectError({kDemo, "--experts", "q9", "-o", low}, 2, "unknown weight type 'q9'");
  ExpectError({kDemo, "--experts", "gate=q2_k", "-o", low}, 2, "'up' has no type");
  ExpectError({kDemo, "--experts", "up=q2_k,down=q2_k", "-o", low}, 2, "'gate' has no type");
  ExpectError({kDemo, "--experts", "q8_0", "-o", low}, 1, "choose lower types");
  ExpectError({kDemo, "--experts", "iq1_s", "-o", low}, 1, "importances");
  ExpectError({folder_.File("none.gguf"), "--experts", "q2_k", "-o", low}, 1, "none.gguf");
  std::ofstream(folder_.File("noise.gguf")) << "this is no model at all";
  ExpectError({folder_.File("noise.gguf"), "--experts", "q2_k", "-o", low}, 1, "noise.gguf");
  EXPECT_FALSE(std::filesystem::exists(low));
}

TEST_F(QuantizeCliTest, ImportancesOfATextGuideTheBits) {
  const std::string text = folder_.File("text.txt");
  std::ofstream(text) << "Once upon a time there was a little dog. The dog had a red ball.\n";
  const std::string imatrix = folder_.File("i.gguf");
  const Finished made = Run({kDemo, "--text", text, "--text", text, "-o", imatrix}, "imatrix");
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_NE(made.out.find("unvisited  "), std::string::npos) << made.out;
  EXPECT_NE(made.out.find(" of 96 experts"), std::string::npos) << made.out;
  const Finished json =
      Run({kDemo, "--text", text, "-n", "4", "-o", imatrix + "2", "--json"}, "imatrix");
  ASSERT_EQ(json.exit_code, 0) << json.err;
  EXPECT_NE(json.out.find("\"tokens\":4"), std::string::npos) << json.out;
  const std::string low = folder_.File("low.gguf");
  const Finished run = Run({kDemo, "--experts", "iq2_xxs", "--imatrix", imatrix, "-o", low});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out.substr(run.out.find("unvisited")), made.out.substr(made.out.find("unvisited")));
  ExpectError({kDemo, "--experts", "iq2_xxs", "--imatrix", kDemo, "-o", low, "--force"}, 1,
              "general.type");
  ExpectError({kDemo, "--experts", "q2_k", "--imatrix", text, "-o", low, "--force"}, 1, text);
  ExpectError({kDemo, "--experts", "q2_k", "--imatrix", imatrix, "-o", imatrix, "--force"}, 1,
              "is read here");
}

}  // namespace
}  // namespace moestro
