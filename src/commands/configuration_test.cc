// SPDX-License-Identifier: MIT
#include "commands/configuration.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>

#include "base/text.h"
#include "commands/commands.h"
#include "commands/settings.h"

namespace moestro {
namespace {

namespace fs = std::filesystem;

class ConfigurationTest : public testing::Test {
 protected:
  ConfigurationTest()
      : folder_(fs::temp_directory_path() /
                Format("moestro_conf_{}_{}", getpid(),
                       testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::create_directories(folder_);
  }
  ~ConfigurationTest() override { fs::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  // The message of a command line with files, the first counting most; empty: it can run.
  std::string Error(const std::vector<std::string>& arguments,
                    const std::vector<std::string>& files) const {
    const auto action = ParseConfigured(*line_, arguments, files);
    return action ? "" : action.error().message;
  }
  // A value that no flag of its kind takes; empty: any text is a value.
  std::string BadValueOf(const FlagText& flag) const {
    for (const std::string bad : {"no such value", "\x01"}) {
      if (!line_->Parse({"serve", Format("--{}={}", flag.name(), bad)})) return bad;
    }
    return "";
  }

  fs::path folder_;
  std::unique_ptr<CommandLine> line_ = MakeCommandLine("1.0");
};

TEST_F(ConfigurationTest, ABadValueOfAnyFlagNamesItsFileAndLine) {
  const ProgramText program = line_->Describe();
  size_t tried = 0;
  for (const FlagText& flag : FindCommand(program, "serve")->flags) {
    if (!flag.positional.empty() || flag.has_name("--help")) continue;
    const std::string bad = flag.is_switch() ? "maybe" : BadValueOf(flag);
    if (bad.empty()) continue;
    const std::string path = Write("bad.conf", Format("\n{} = {}\n", flag.name(), bad));
    const std::string error = Error({"serve"}, {path});
    EXPECT_TRUE(error.starts_with(path + ":2: ")) << flag.name() << ": " << error;
    EXPECT_TRUE(error.contains(flag.name())) << error;
    ++tried;
  }
  EXPECT_GT(tried, 25U);
}

TEST_F(ConfigurationTest, EveryFlagOfServeCanBeAVariable) {
  const ProgramText program = line_->Describe();
  for (const FlagText& flag : FindCommand(program, "serve")->flags) {
    if (flag.has_name("--help")) continue;
    std::string variable = "MOESTRO_";
    for (const char c : flag.name()) {
      variable += c == '-' ? '_' : static_cast<char>(std::toupper(c));
    }
    setenv(variable.c_str(), flag.is_switch() ? "maybe" : "no such value", 1);
    const std::string error = Error({"serve"}, {});
    setenv(variable.c_str(), "", 1);
    EXPECT_EQ(Error({"serve"}, {}), "") << "an empty variable sets nothing";
    unsetenv(variable.c_str());
    const bool fails = flag.is_switch() || !BadValueOf(flag).empty();
    EXPECT_EQ(error.starts_with(variable + ": "), fails && flag.positional.empty()) << error;
  }
}

TEST_F(ConfigurationTest, AFlagTakesThePlaceOfABadOrExcludedSetting) {
  const std::string bad = Write("bad.conf", "port = many\n");
  EXPECT_TRUE(Error({"serve"}, {bad}).starts_with(bad + ":1: "));
  EXPECT_EQ(Error({"serve", "--port", "1"}, {bad}), "");
  const std::string good = Write("good.conf", "port = 1\n");
  EXPECT_EQ(Error({"serve"}, {good, bad}), "");
  const std::string excluded = Write("excluded.conf", "policy-file = x\n");
  EXPECT_EQ(Error({"serve", "--policy", "lru"}, {excluded}), "");
  const std::string both = Write("both.conf", "policy-file = x\npolicy = lru\n");
  EXPECT_TRUE(Error({"serve"}, {both}).contains("excludes")) << Error({"serve"}, {both});
  EXPECT_TRUE(Error({"serve"}, {both}).starts_with(both + ":"));
  // A mistake on the command line is none of the file's.
  EXPECT_FALSE(Error({"serve", "--port", "many"}, {good}).contains("good.conf"));
}

TEST_F(ConfigurationTest, ALinkOfContainersIsNoMistake) {
  setenv("MOESTRO_PORT", "tcp://10.0.0.7:80", 1);
  const std::string error = Error({"serve"}, {});
  unsetenv("MOESTRO_PORT");
  EXPECT_EQ(error, "");
}

TEST_F(ConfigurationTest, AHomeThatIsUnknownIsSaidWithTheLine) {
  const std::string path = Write("home.conf", "policy-file = ~/x\n");
  const std::string home = std::getenv("HOME") == nullptr ? "" : std::getenv("HOME");
  unsetenv("HOME");
  EXPECT_TRUE(Error({"serve"}, {path}).starts_with(path + ":1: policy-file begins with ~/"));
  setenv("HOME", "/", 1);
  EXPECT_EQ(Error({"serve"}, {path}), "");
  setenv("HOME", home.c_str(), 1);
}

TEST_F(ConfigurationTest, HelpAndOtherCommandsDoNotLookAtSettings) {
  const std::string bad = Write("bad.conf", "dance = 1\n");
  EXPECT_EQ(Error({"serve", "--help"}, {bad}), "");
  EXPECT_EQ(Error({"run", "-p", "a"}, {bad}), "");
  EXPECT_FALSE(Error({"serve"}, {bad}).empty());
  EXPECT_FALSE(Error({"health"}, {bad}).empty());
  EXPECT_EQ(Error({"health"}, {Write("good.conf", "port = 9\nram = 6G\nmodel = x\n")}), "");
}

TEST_F(ConfigurationTest, WhatIsNoFileOfSettingsIsRefused) {
  const std::string huge = Write("huge.conf", std::string(kLargestSettingsFile + 1, '\n'));
  EXPECT_TRUE(Error({"serve"}, {huge}).contains("256 KiB")) << Error({"serve"}, {huge});
  EXPECT_EQ(Error({"serve"}, {Write("large.conf", std::string(kLargestSettingsFile, '\n'))}), "");
  EXPECT_TRUE(Error({"serve"}, {folder_}).contains("no plain file"));
  const std::string pipe = folder_ / "pipe.conf";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_TRUE(Error({"serve"}, {pipe}).contains("no plain file")) << "it would wait for a writer";
  EXPECT_TRUE(Error({"serve"}, {"/dev/zero"}).contains("no plain file"));
  EXPECT_EQ(Error({"serve"}, {folder_ / "absent.conf", huge + "/below", ""}), "");
  fs::create_symlink("loop.conf", folder_ / "loop.conf");
  EXPECT_TRUE(Error({"serve"}, {folder_ / "loop.conf"}).contains("cannot read the settings"));
}

}  // namespace
}  // namespace moestro
