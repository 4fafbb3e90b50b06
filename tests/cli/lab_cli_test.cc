// SPDX-License-Identifier: MIT
// Two programs: `moestro` starts the laboratory's that lies beside it for the laboratory's
// commands.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "tests/cli/program_testing.h"

namespace moestro {
namespace {

namespace fs = std::filesystem;
using testing::Finished;
using testing::kDemo;
using testing::Program;

class LabCliTest : public ::testing::Test {
 protected:
  LabCliTest()
      : folder_(fs::temp_directory_path() /
                Format("moestro_lab_{}_{}", getpid(),
                       ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::create_directories(folder_);
    fs::permissions(folder_, fs::perms::owner_all);  // whatever the umask
  }
  ~LabCliTest() override { fs::remove_all(folder_); }

  Finished Run(std::vector<std::string> arguments, const std::string& binary = MOESTRO_BINARY) {
    return Program(folder_, {.arguments = std::move(arguments), .binary = binary}).Wait();
  }
  // A copy of `moestro` in a folder of its own. Where it is a link, /proc leads to the original.
  std::string Alone() {
    fs::copy_file(MOESTRO_BINARY, folder_ / "moestro", fs::copy_options::skip_existing);
    return folder_ / "moestro";
  }
  // A copy with a shell script beside it in the laboratory's place.
  std::string WithScript(const std::string& script) {
    std::ofstream(folder_ / "moestro-lab") << "#!/bin/sh\n" << script << "\n";
    chmod((folder_ / "moestro-lab").c_str(), 0755);
    return Alone();
  }
  void ExpectFailure(const Finished& run, int exit_code, const std::vector<std::string>& parts) {
    EXPECT_EQ(run.exit_code, exit_code) << run.err;
    EXPECT_TRUE(run.err.starts_with("moestro: ")) << run.err;
    EXPECT_EQ(std::ranges::count(run.err, '\n'), 1) << run.err;
    for (const std::string& part : parts) EXPECT_TRUE(run.err.contains(part)) << part << run.err;
    EXPECT_EQ(run.out, "");
  }

  fs::path folder_;
};

TEST_F(LabCliTest, HelpListsBothGroupsAndSaysWhereTheSecondIs) {
  const Finished all = Run({"--help"});
  EXPECT_EQ(all.exit_code, 0);
  const size_t lab = all.out.find("moestro-lab");
  ASSERT_NE(lab, std::string::npos) << all.out;
  EXPECT_LT(all.out.find("\n  doctor "), lab) << all.out;
  EXPECT_GT(all.out.find("\n  eval "), lab) << all.out;
  EXPECT_TRUE(all.out.contains("make lab")) << all.out;
  const Finished own = Run({"--help"}, MOESTRO_LAB);
  EXPECT_EQ(own.exit_code, 0);
  EXPECT_TRUE(own.out.contains("\n  eval ")) << own.out;
  EXPECT_FALSE(own.out.contains("\n  run ")) << own.out;
}

TEST_F(LabCliTest, BesideItBothNamesDoTheSame) {
  const Finished bridged = Run({"logits", kDemo, "--tokens", "1,2"});
  const Finished direct = Run({"logits", kDemo, "--tokens", "1,2"}, MOESTRO_LAB);
  EXPECT_EQ(bridged.exit_code, 0) << bridged.err;
  EXPECT_EQ(direct.exit_code, 0) << direct.err;
  EXPECT_EQ(bridged.out, direct.out);
  EXPECT_TRUE(Run({"logits", "--help"}).out.contains("moestro logits ["));
  EXPECT_TRUE(Run({"logits", "--help"}, MOESTRO_LAB).out.contains("moestro-lab logits ["));
  ExpectFailure(Run({"logits"}), 2, {"MODEL is required (see moestro logits --help)"});
  ExpectFailure(Run({"logits"}, MOESTRO_LAB), 2, {"(see moestro-lab logits --help)"});
  ExpectFailure(Run({"logits", kDemo}), 2, {"--tokens"});
  ExpectFailure(Run({"logits", folder_ / "none.gguf", "--tokens", "1"}), 1, {"none.gguf"});
  EXPECT_TRUE(Run({"--version"}, MOESTRO_LAB).out.starts_with("moestro-lab " MOESTRO_VERSION));
}

TEST_F(LabCliTest, ALinkToTheProgramFindsTheLaboratoryOfTheOriginal) {
  fs::create_symlink(MOESTRO_BINARY, folder_ / "moestro");
  const Finished run = Run({"synth", "--list"}, folder_ / "moestro");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_TRUE(run.out.contains("qwen3-30b-a3b")) << run.out;
}

TEST_F(LabCliTest, WithoutItACommandSaysHowToGetIt) {
  const std::string alone = Alone();
  ExpectFailure(Run({"eval", kDemo}, alone), 1,
                {"'moestro eval'", "moestro-lab", folder_, "package moestro-lab", "make lab"});
  ExpectFailure(Run({"sim", "--help"}, alone), 1, {"'moestro sim'"});
  EXPECT_EQ(Run({"--help"}, alone).exit_code, 0);
  EXPECT_EQ(Run({"inspect", kDemo}, alone).exit_code, 0);
  // Neither the search path nor the current folder counts.
  fs::create_directory(folder_ / "elsewhere");
  std::ofstream(folder_ / "elsewhere" / "moestro-lab") << "#!/bin/sh\nexit 0\n";
  chmod((folder_ / "elsewhere" / "moestro-lab").c_str(), 0755);
  const std::string path = std::getenv("PATH") == nullptr ? "" : std::getenv("PATH");
  setenv("PATH", (folder_ / "elsewhere").c_str(), 1);
  const Finished run = Run({"eval"}, alone);
  setenv("PATH", path.c_str(), 1);
  EXPECT_EQ(run.exit_code, 1) << run.err;
}

TEST_F(LabCliTest, OfAnotherVersionItRefuses) {
  ExpectFailure(Run({"--called-by-moestro=0.0.9", "eval", kDemo}, MOESTRO_LAB), 1,
                {"0.0.9", MOESTRO_VERSION, "one version"});
  const std::string hostile = "--called-by-moestro=" + std::string(5000, 'x') + "\n\x1b[31m";
  const Finished run = Run({hostile, "eval"}, MOESTRO_LAB);
  ExpectFailure(run, 1, {"one version"});
  EXPECT_LT(run.err.size(), 1000U);
  EXPECT_FALSE(run.err.contains('\x1b'));
  // The version that the caller names is its own.
  const Finished called = Run({"eval", "x"}, WithScript("echo \"$1\""));
  EXPECT_EQ(called.out, "--called-by-moestro=" MOESTRO_VERSION "\n");
}

TEST_F(LabCliTest, ArgumentsVariablesAndTheExitCodeArePassedOn) {
  const std::string program = WithScript(
      "shift; for a in \"$@\"; do printf '<%s>' \"$a\"; done; printf \"$MOESTRO_TEST_X\"; "
      "cat; exit 42");
  const std::vector<std::string> arguments = {"sim", "", "a b", "-cnv", "-st", "\n", "\xff'\"$(x)"};
  setenv("MOESTRO_TEST_X", "variable", 1);
  const Finished run =
      Program(folder_, {.arguments = arguments, .binary = program, .input = "input"}).Wait();
  unsetenv("MOESTRO_TEST_X");
  std::string wanted;
  for (const std::string& argument : arguments) wanted += "<" + argument + ">";
  EXPECT_EQ(run.out, wanted + "variableinput");
  EXPECT_EQ(run.exit_code, 42);
  EXPECT_EQ(run.err, "");
}

TEST_F(LabCliTest, SignalsReachIt) {
  const std::string program =
      WithScript("trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done");
  std::array<int, 2> ends = {-1, -1};
  ASSERT_EQ(pipe(ends.data()), 0);
  Program run(folder_, {.arguments = {"trace"}, .binary = program, .out_fd = ends[1]});
  char first = 0;
  EXPECT_EQ(read(ends[0], &first, 1), 1);  // it runs
  run.Signal(SIGTERM);
  EXPECT_EQ(run.Wait().exit_code, 7);
  close(ends[0]);
  close(ends[1]);
  // And one that ends it ends the call: it is the same process.
  EXPECT_EQ(Run({"fit"}, WithScript("kill -KILL $$")).exit_code, -1);
}

TEST_F(LabCliTest, WhatCannotBeStartedIsNamed) {
  const std::string program = WithScript("exit 0");
  const fs::path lab = folder_ / "moestro-lab";
  chmod(lab.c_str(), 0644);
  ExpectFailure(Run({"eval"}, program), 1, {lab, "Permission denied", "package moestro-lab"});
  std::ofstream(lab, std::ios::trunc) << "no program";
  chmod(lab.c_str(), 0755);
  ExpectFailure(Run({"eval"}, program), 1, {lab, "Exec format error"});
  std::ofstream(lab, std::ios::trunc) << "";
  ExpectFailure(Run({"eval"}, program), 1, {lab, "Exec format error"});
  chmod(lab.c_str(), 0757);
  ExpectFailure(Run({"eval"}, program), 1, {lab, "anybody may write"});
  fs::remove(lab);
  fs::create_directory(lab);
  ExpectFailure(Run({"eval"}, program), 1, {lab, "no plain file"});
  fs::remove(lab);
  fs::create_symlink("moestro-lab", lab);
  ExpectFailure(Run({"eval"}, program), 1, {lab, "symbolic links"});
  fs::remove(lab);
  fs::create_symlink("nowhere", lab);
  ExpectFailure(Run({"eval"}, program), 1, {"moestro-lab", "package moestro-lab"});
}

TEST_F(LabCliTest, NamesOfNeitherAndOfTheOther) {
  ExpectFailure(Run({"evla"}), 2, {"did you mean 'moestro eval'?"});
  ExpectFailure(Run({"rnu"}), 2, {"did you mean 'moestro run'?"});
  ExpectFailure(Run({"dance"}), 2, {"commands are run, ", "of moestro-lab eval, "});
  ExpectFailure(Run({"evla"}, MOESTRO_LAB), 2, {"did you mean 'moestro-lab eval'?"});
  ExpectFailure(Run({"rnu"}, MOESTRO_LAB), 2, {"did you mean 'moestro run'?"});
  ExpectFailure(Run({"run"}, MOESTRO_LAB), 2, {"'run' is a command of moestro: moestro run"});
  ExpectFailure(Run({"run", "--help"}, MOESTRO_LAB), 2, {"a command of moestro"});
  ExpectFailure(Run({"m.gguf"}, MOESTRO_LAB), 2, {"moestro run m.gguf"});
  ExpectFailure(Run({}, MOESTRO_LAB), 2, {"a command is missing", "eval"});
  ExpectFailure(Run({"--called-by-moestro=" MOESTRO_VERSION}, MOESTRO_LAB), 2, {"missing"});
}

}  // namespace
}  // namespace moestro
