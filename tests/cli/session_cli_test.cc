// SPDX-License-Identifier: MIT
// `run --session` and `run --explain` from outside.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cli/program_testing.h"
#include "tests/support/chat_model_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

using testing::Finished;
using testing::kDemo;
using testing::Program;

class SessionCliTest : public ::testing::Test {
 protected:
  Finished Run(std::vector<std::string> arguments) const {
    return Program(folder_.path(), {.arguments = std::move(arguments), .input = {}}).Wait();
  }

  TempFolder folder_;
};

// Twenty tokens, saved, and twenty more are the forty of one run.
TEST_F(SessionCliTest, ASavedSessionGoesOnWhereItEnded) {
  const std::string file = (folder_.path() / "story.moeseq").string();
  const auto say = [&](const std::string& prompt, const char* n, bool saves) {
    std::vector<std::string> arguments = {"run", kDemo,    "-p", prompt,     "-n",
                                          n,     "--temp", "0",  "--no-perf"};
    if (saves) arguments.insert(arguments.end(), {"--session", file});
    const auto result = Run(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out.substr(0, result.out.size() - 1);  // without the newline
  };
  const std::string whole = say("Once upon a time", "40", false);
  const std::string first = say("Once upon a time", "20", true);
  EXPECT_EQ(first + say("", "20", true), whole);
}

// It holds a conversation.
TEST_F(SessionCliTest, ASavedSessionIsItsOwners) {
  namespace fs = std::filesystem;
  const std::string file = (folder_.path() / "story.moeseq").string();
  for (int i = 0; i < 2; ++i) {  // a new file, and one that replaces a file that others can read
    const auto result = Run({"run", kDemo, "-p", "Once", "-n", "3", "--session", file});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(fs::status(file).permissions(), fs::perms::owner_read | fs::perms::owner_write);
    fs::permissions(file, fs::perms::others_read, fs::perm_options::add);
  }
}

TEST_F(SessionCliTest, ASessionFileThatIsNoneIsRefusedAndStays) {
  const std::string file = (folder_.path() / "notes.txt").string();
  std::ofstream(file) << "not a sequence, but something that somebody wants to keep";
  const auto result = Run({"run", kDemo, "-p", "Once", "-n", "3", "--session", file});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("notes.txt"), std::string::npos) << result.err;
  std::ifstream in(file);
  const std::string after((std::istreambuf_iterator<char>(in)), {});
  EXPECT_EQ(after, "not a sequence, but something that somebody wants to keep");
}

// A pipe that holds a few words, so that whoever writes to it waits.
class NarrowPipe {
 public:
  NarrowPipe() {
    EXPECT_EQ(pipe2(ends_.data(), O_CLOEXEC), 0);
    EXPECT_EQ(fcntl(ends_[1], F_SETPIPE_SZ, kBytes), kBytes);
    const std::string filler(kFiller, 'x');
    EXPECT_EQ(write(ends_[1], filler.data(), filler.size()), kFiller);
  }
  ~NarrowPipe() {
    CloseInput();
    close(ends_[0]);
  }
  NarrowPipe(const NarrowPipe&) = delete;
  NarrowPipe& operator=(const NarrowPipe&) = delete;

  int in() const { return ends_[1]; }
  void CloseInput() {
    if (ends_[1] >= 0) close(std::exchange(ends_[1], -1));
  }
  void WaitForAWord() const {
    int waiting = 0;
    while (ioctl(ends_[0], FIONREAD, &waiting) == 0 && waiting <= kFiller) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  std::string ReadAll() const {
    std::string text;
    std::array<char, kBytes> buffer{};
    for (ssize_t n = 0; (n = read(ends_[0], buffer.data(), buffer.size())) > 0;) {
      text.append(buffer.data(), static_cast<size_t>(n));
    }
    return text.substr(kFiller);
  }

 private:
  static constexpr int kBytes = 4096;
  static constexpr int kFiller = 4000;
  std::array<int, 2> ends_{};
};

// Terminals that close send SIGHUP several times, service managers SIGTERM and SIGHUP at once.
TEST_F(SessionCliTest, ASignalThatEndsItKeepsWhatWasSaid) {
  const std::vector<std::vector<int>> ends = {{SIGINT},          {SIGTERM},
                                              {SIGHUP},          {SIGHUP, SIGHUP, SIGHUP},
                                              {SIGTERM, SIGHUP}, {SIGHUP, SIGTERM}};
  for (const std::vector<int>& signals : ends) {
    const std::string file = folder_.File("story.moeseq");
    std::filesystem::remove(file);
    NarrowPipe pipe;
    Program program(folder_.path(),
                    {.arguments = {"run", kDemo, "-p", "Once upon a time", "--ignore-eos", "--temp",
                                   "0", "-t", "1", "--no-perf", "--session", file},
                     .out_fd = pipe.in()});
    pipe.CloseInput();
    pipe.WaitForAWord();
    for (const int number : signals) program.Signal(number);
    const std::string said = pipe.ReadAll();
    const Finished finished = program.Wait();
    EXPECT_EQ(finished.exit_code, 0) << signals.front() << ": " << finished.err;
    ASSERT_TRUE(std::filesystem::exists(file)) << signals.front();
    EXPECT_TRUE(said.starts_with("Once upon a time")) << said;
    EXPECT_LT(said.size(), 400U) << "it went on";
    const Finished more = Run({"run", kDemo, "-p", "", "-n", "8", "--temp", "0", "--no-perf",
                               "--ignore-eos", "--session", file});
    const Finished whole = Run({"run", kDemo, "-p", "Once upon a time", "-n", "200", "--temp", "0",
                                "--no-perf", "--ignore-eos"});
    const std::string both =
        said.substr(0, said.size() - 1) + more.out.substr(0, more.out.size() - 1);
    EXPECT_TRUE(whole.out.starts_with(both)) << both << "\n" << whole.out;
  }
}

// nohup
TEST_F(SessionCliTest, AnIgnoredHangupStaysIgnored) {
  const auto before = signal(SIGHUP, SIG_IGN);  // which the program inherits
  NarrowPipe pipe;
  Program program(folder_.path(), {.arguments = {"run", kDemo, "-p", "Once", "-n", "200", "-t", "1",
                                                 "--ignore-eos", "--no-perf"},
                                   .out_fd = pipe.in()});
  signal(SIGHUP, before);
  pipe.CloseInput();
  pipe.WaitForAWord();
  program.Signal(SIGHUP);
  EXPECT_GT(pipe.ReadAll().size(), 400U);
  EXPECT_EQ(program.Wait().exit_code, 0);
}

// A disk that is full, a terminal that is gone without a signal.
TEST_F(SessionCliTest, WhatNobodyTookIsKeptToo) {
  const std::string file = folder_.File("story.moeseq");
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(full, 0);
  const Finished finished =
      Program(folder_.path(), {.arguments = {"run", kDemo, "-p", "Once", "-n", "5", "--session",
                                             file, "--no-display-prompt"},
                               .out_fd = full})
          .Wait();
  close(full);
  EXPECT_EQ(finished.exit_code, 1);
  EXPECT_TRUE(finished.err.contains("standard output")) << finished.err;
  EXPECT_TRUE(std::filesystem::exists(file));
}

class ConversationEndTest : public SessionCliTest {
 protected:
  void SetUp() override {
    model_ = folder_.File("chat.gguf");
    ASSERT_TRUE(WriteChatModel(MOESTRO_SOURCE_DIR "/models/stories-moe-q8_0.gguf", model_,
                               "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
                               "assistant:"));
    terminal_ = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    ASSERT_EQ(grantpt(terminal_), 0);
    ASSERT_EQ(unlockpt(terminal_), 0);
    std::string name(64, '\0');
    ASSERT_EQ(ptsname_r(terminal_, name.data(), name.size()), 0);
    typed_ = open(name.c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC);
  }
  void TearDown() override {
    HangUp();
    close(typed_);
  }
  void HangUp() {
    if (terminal_ >= 0) close(std::exchange(terminal_, -1));
  }
  // A conversation at a terminal that has begun with "hello".
  Program Begin() {
    const std::string hello = "hello\n";
    EXPECT_EQ(write(terminal_, hello.data(), hello.size()), static_cast<ssize_t>(hello.size()));
    return Program(folder_.path(),
                   {.arguments = {"run", model_, "-cnv", "-n", "3", "--ctx", "512", "--no-perf",
                                  "-t", "1", "--temp", "0", "--session", file()},
                    .in_fd = typed_,
                    .out_fd = typed_});
  }
  // Until the program asks for the `n`th message.
  void WaitForQuestion(size_t n) {
    std::string shown;
    for (size_t asked = 0; asked < n;) {
      std::array<char, 512> buffer{};
      const ssize_t got = read(terminal_, buffer.data(), buffer.size());
      ASSERT_GT(got, 0);
      shown.append(buffer.data(), static_cast<size_t>(got));
      asked = 0;
      for (size_t at = 0; (at = shown.find("\n> ", at)) != std::string::npos; ++at) ++asked;
    }
  }
  void ExpectKept() {
    ASSERT_TRUE(std::filesystem::exists(file()));
    const Finished more = Run({"run", model_, "-cnv", "-st", "-p", "again", "-n", "3", "--ctx",
                               "512", "-t", "1", "--explain", "--session", file()});
    EXPECT_EQ(more.exit_code, 0) << more.err;
    EXPECT_FALSE(more.err.contains(" 0 cached")) << more.err;
  }
  std::string file() const { return folder_.File("talk.moeseq"); }

  std::string model_;
  int terminal_ = -1;
  int typed_ = -1;
};

TEST_F(ConversationEndTest, ASignalWhileItWaitsForAMessage) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    std::filesystem::remove(file());
    Program program = Begin();
    WaitForQuestion(2);
    program.Signal(number);
    const Finished finished = program.Wait();
    EXPECT_EQ(finished.exit_code, 0) << number << ": " << finished.err;
    ExpectKept();
  }
}

TEST_F(ConversationEndTest, ATerminalThatIsGone) {
  Program program = Begin();
  WaitForQuestion(2);
  HangUp();
  const Finished finished = program.Wait();
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  ExpectKept();
}

TEST_F(SessionCliTest, ExplainShowsAPlanForEachLayer) {
  const auto result = Run({"run", kDemo, "-p", "Once", "-n", "3", "--explain", "--cache", "25%"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.err.find("layer   0:"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("layer   5:"), std::string::npos) << result.err;
  EXPECT_EQ(result.err.find("layer   6:"), std::string::npos) << "the demo model has six layers";
  EXPECT_TRUE(result.err.contains("prompts  2 tokens: 0 cached, 2 computed\n")) << result.err;
}

}  // namespace
}  // namespace moestro
