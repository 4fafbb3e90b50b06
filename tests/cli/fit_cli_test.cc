// SPDX-License-Identifier: MIT
// `moestro fit` from outside.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
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

class FitCliTest : public ::testing::Test {
 protected:
  FitCliTest() : text_(folder_.File("text.txt")), out_(folder_.File("fitted.gguf")) {
    std::ofstream text(text_);
    for (int i = 0; i < 40; ++i)
      text << "Tom saw " << i << " birds in the big tree. He was happy. ";
  }
  Finished Run(std::vector<std::string> arguments, const char* command = "fit") const {
    arguments.insert(arguments.begin(), {command, "-t", "1"});
    return Program(folder_.path(), {.arguments = std::move(arguments)}).Wait();
  }
  void ExpectError(std::vector<std::string> arguments, int exit_code,
                   const std::string& part) const {
    const Finished run = Run(std::move(arguments));
    EXPECT_EQ(run.exit_code, exit_code) << run.err;
    EXPECT_NE(run.err.find(part), std::string::npos) << "wanted " << part << "\n" << run.err;
    EXPECT_EQ(run.out, "");
  }

  TempFolder folder_;
  std::string text_;
  std::string out_;
};

TEST_F(FitCliTest, WhatItWritesIsAModelForEveryCommand) {
  const std::string plot = folder_.File("importance.svg");
  const Finished fit = Run({kDemo,      "--text",         text_,  "--tolerance",
                            "KL=0.005", "--widths",       "q2_k", "-o",
                            out_,       "--tokens",       "130",  "--window",
                            "32",       "--measure-most", "0",    "--measure-minutes",
                            "0",        "--plot",         plot,   "--json"});
  ASSERT_EQ(fit.exit_code, 0) << fit.err;
  EXPECT_NE(fit.err.find("at most"), std::string::npos) << fit.err;  // minutes
  EXPECT_NE(fit.out.find("\"rank_correlation\":"), std::string::npos) << fit.out;
  EXPECT_GT(std::filesystem::file_size(plot), 0U);
  EXPECT_LT(std::filesystem::file_size(out_), std::filesystem::file_size(kDemo));
  const Finished inspect = Run({out_}, "inspect");
  EXPECT_EQ(inspect.exit_code, 0) << inspect.err;
  EXPECT_NE(inspect.out.find("q2_K"), std::string::npos) << inspect.out;
  EXPECT_EQ(Run({out_, "-p", "Once", "-n", "4"}, "run").exit_code, 0);
  EXPECT_EQ(Run({out_, "--text", text_, "--tokens", "40"}, "eval").exit_code, 0);
  const auto against = [&](const std::string& other) {
    return Run({out_, "--text", text_, "--tokens", "40", "--against", other, "--json"}, "eval");
  };
  EXPECT_NE(against("exact").out.find("\"kl_mean\":0.0,"), std::string::npos);
  const Finished source = against(kDemo);
  EXPECT_EQ(source.exit_code, 0) << source.err;
  EXPECT_NE(source.out.find("\"kl_mean\":0.0"), std::string::npos) << source.out;
  EXPECT_EQ(source.out.find("\"kl_mean\":0.0,"), std::string::npos) << source.out;
  ExpectError({out_, "--text", text_, "--tolerance", "KL=1", "-o", folder_.File("again.gguf")}, 1,
              "is a fitted model");
}

TEST_F(FitCliTest, MistakesAreNamed) {
  ExpectError({kDemo, "--text", text_, "-o", out_}, 2, "--tolerance");
  ExpectError({kDemo, "--tolerance", "KL=1", "-o", out_}, 2, "--text");
  ExpectError({kDemo, "--text", text_, "--tolerance", "1%", "-o", out_}, 2, "ppl=1%");
  ExpectError({kDemo, "--text", text_, "--tolerance", "KL=1", "--widths", "q2_k,q99", "-o", out_},
              2, "q99");
  ExpectError({kDemo, "--text", text_, "--tolerance", "KL=1", "-o", kDemo, "--force"}, 1,
              "cannot be the output");
  ExpectError({kDemo, "--text", text_, "--tolerance", "KL=1", "-o", text_}, 1, "is read here");
  ExpectError({kDemo, "--text", folder_.File("none"), "--tolerance", "KL=1", "-o", out_}, 1,
              "none");
  ExpectError({kDemo, "--text", text_, "--tolerance", "KL=1", "-o", out_, "--imatrix", text_}, 1,
              text_);
  ExpectError({kDemo, "--text", text_, "--tolerance", "KL=1", "-o", out_, "--window", "2000"}, 1,
              "--window");
  EXPECT_FALSE(std::filesystem::exists(out_));
}

}  // namespace
}  // namespace moestro
