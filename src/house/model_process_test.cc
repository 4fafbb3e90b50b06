// SPDX-License-Identifier: MIT
// Processes are shells that run a few commands in place of this program.
#include "house/model_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/number.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

using namespace std::chrono_literals;

class ModelProcessTest : public ::testing::Test {
 protected:
  // The first argument of a process is kWorkerFlags; the next one here holds the commands.
  ModelProcessTest() {
    std::ofstream(Program()) << "#!/bin/sh\n[ \"$1\" = " << kWorkerFlags
                             << " ] || exit 99\nshift\neval \"$1\"\n";
    std::filesystem::permissions(Program(), std::filesystem::perms::owner_all);
  }

  std::string Program() const { return (folder_.path() / "shell").string(); }
  std::unique_ptr<ModelProcess> Start(const std::string& commands) const {
    auto process = ModelProcess::Start(std::vector{commands}, "coder", Program());
    EXPECT_TRUE(process) << process.error().message;
    return process ? *std::move(process) : nullptr;
  }
  static bool Await(const std::function<bool()>& is_so) {
    for (int i = 0; i < 2000; ++i) {
      if (is_so()) return true;
      std::this_thread::sleep_for(5ms);
    }
    return false;
  }
  static bool AwaitEnd(ModelProcess& process) {
    return Await([&] { return process.HasEnded(); });
  }
  // All that a process writes to stdout.
  std::string OutputOf(const std::string& commands) const {
    const auto process = Start(commands);
    if (!process || !AwaitEnd(*process)) return "does not end";
    return process->Output();
  }
  std::string EndOf(const std::string& commands) const {
    const auto process = Start(commands);
    if (!process || !AwaitEnd(*process)) return "does not end";
    return process->EndText();
  }
  static bool IsGone(pid_t id) { return ::kill(id, 0) != 0 && errno == ESRCH; }

  TempFolder folder_;
};

TEST_F(ModelProcessTest, ItsOutputIsWholeWhenItHasEnded) {
  EXPECT_EQ(OutputOf("echo '{\"smallest\":1}'; echo more"), "{\"smallest\":1}\nmore\n");
  EXPECT_EQ(OutputOf("head -c 3000000 /dev/zero | tr '\\0' x"), std::string(1 << 20, 'x'));
}

TEST_F(ModelProcessTest, ItsEndIsToldAsItWas) {
  EXPECT_EQ(EndOf("exit 0"), "exit code 0");
  EXPECT_EQ(EndOf("exit 3"), "exit code 3");
  EXPECT_EQ(EndOf("kill -11 $$"), "signal 11 (Segmentation fault)");
  EXPECT_EQ(EndOf("kill -9 $$"),
            "signal 9 (Killed) from outside, which the kernel sends where memory runs out");
  const auto absent = ModelProcess::Start({}, "coder", "/nonexistent");
  ASSERT_TRUE(absent);
  ASSERT_TRUE(AwaitEnd(**absent));
  EXPECT_EQ((*absent)->EndText(), "exit code 127");
}

TEST_F(ModelProcessTest, ItsLinesGoOnBehindItsNameAndTheLastOneIsKept) {
  ::testing::internal::CaptureStderr();
  const auto process =
      Start("echo hello >&2; echo '{\"id\":1}' >&2; echo 'moestro: it is broken' >&2; echo >&2");
  ASSERT_TRUE(process && AwaitEnd(*process));
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(said.contains("coder: hello\n{\"id\":1}\ncoder: moestro: it is broken\n")) << said;
  EXPECT_EQ(process->LastLine(), "it is broken");
  EXPECT_EQ(process->Output(), "");
}

TEST_F(ModelProcessTest, ALineWithoutAnEndIsOneAndALongOneIsSeveral) {
  ::testing::internal::CaptureStderr();
  const auto cut = Start("printf 'half a li' >&2");
  ASSERT_TRUE(cut && AwaitEnd(*cut));
  EXPECT_EQ(cut->LastLine(), "half a li");
  const auto flood = Start("head -c 300000 /dev/zero | tr '\\0' y >&2; echo done");
  ASSERT_TRUE(flood && AwaitEnd(*flood));  // nobody waits for a full pipe
  EXPECT_EQ(flood->Output(), "done\n");
  EXPECT_LT(flood->LastLine().size(), 32U << 10U);
  ::testing::internal::GetCapturedStderr();
}

// A logger that stands still, or a terminal that was stopped.
TEST_F(ModelProcessTest, ItEndsAlsoWhereNobodyReadsItsLines) {
  std::array<int, 2> ends = {};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  const int before = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
  dup2(ends[1], STDERR_FILENO);
  const auto process = Start("yes some line | head -c 1000000 >&2; echo whole");
  const bool has_ended = process && AwaitEnd(*process);
  dup2(before, STDERR_FILENO);
  for (const int fd : {ends[0], ends[1], before}) close(fd);
  ASSERT_TRUE(has_ended);
  EXPECT_EQ(process->Output(), "whole\n");
  EXPECT_EQ(process->LastLine(), "some line");
}

TEST_F(ModelProcessTest, FlagsInTheEnvironmentStayHere) {
  ::setenv("MOESTRO_CTX", "5", 1);
  ::setenv("NOTIFY_SOCKET", "/run/x", 1);
  ::setenv("OTHER_VARIABLE", "yes", 1);
  EXPECT_EQ(OutputOf("echo \"[$MOESTRO_CTX][$NOTIFY_SOCKET][$OTHER_VARIABLE]\""), "[][][yes]\n");
  for (const char* name : {"MOESTRO_CTX", "NOTIFY_SOCKET", "OTHER_VARIABLE"}) ::unsetenv(name);
}

TEST_F(ModelProcessTest, ItReadsNothingAndHasAGroupOfItsOwn) {
  EXPECT_EQ(OutputOf("read line; echo $?"), "1\n");
  EXPECT_EQ(OutputOf("[ \"$(cut -d' ' -f5 /proc/$$/stat)\" = $$ ] && echo own"), "own\n");
}

TEST_F(ModelProcessTest, SignalsReachItEvenIfItsParentIgnoresThem) {
  const auto process = Start("trap 'echo bye; exit 0' HUP; echo up; while :; do sleep 0.02; done");
  ASSERT_TRUE(process && Await([&] { return process->Output() == "up\n"; }));
  EXPECT_FALSE(process->HasEnded());
  process->Tell(SIGHUP);
  ASSERT_TRUE(AwaitEnd(*process));
  EXPECT_EQ(process->Output(), "up\nbye\n");
  process->Tell(SIGKILL);  // the number may be another process's by now
  const auto killed = Start("echo up; while :; do sleep 0.02; done");
  ASSERT_TRUE(killed && Await([&] { return killed->Output() == "up\n"; }));
  killed->Tell(SIGKILL);
  ASSERT_TRUE(AwaitEnd(*killed));
  EXPECT_EQ(killed->EndText(), "signal 9 (Killed)");
  const auto before = ::signal(SIGHUP, SIG_IGN);
  EXPECT_EQ(EndOf("kill -HUP $$; echo survived"), "signal 1 (Hangup)");
  ::signal(SIGHUP, before);
}

TEST_F(ModelProcessTest, AStoppedOneIsKnownAndWoken) {
  const auto process = Start("kill -STOP $$; echo woken");
  ASSERT_TRUE(process && Await([&] { return process->IsStopped(); }));
  EXPECT_FALSE(process->HasEnded());
  process->Tell(0);
  ASSERT_TRUE(AwaitEnd(*process));
  EXPECT_EQ(process->Output(), "woken\n");
  EXPECT_FALSE(process->IsStopped());
}

TEST_F(ModelProcessTest, OneThatIsNoLongerWantedEndsAtOnce) {
  auto process = Start("trap '' TERM HUP; echo $$; while :; do sleep 0.05; done");
  ASSERT_TRUE(process && Await([&] { return process->Output().ends_with('\n'); }));
  const std::string text = process->Output();
  const auto id = ParseNumber<pid_t>(text.substr(0, text.size() - 1));
  ASSERT_TRUE(id);
  process.reset();
  EXPECT_TRUE(IsGone(*id));
}

// Its pipes are still open then.
TEST_F(ModelProcessTest, ItHasEndedWhileAChildOfItsOwnLives) {
  const auto began = std::chrono::steady_clock::now();
  const auto process = Start("sleep 60 & echo $!");
  ASSERT_TRUE(process && AwaitEnd(*process));
  EXPECT_LT(std::chrono::steady_clock::now() - began, 20s);
  const std::string text = process->Output();
  const auto child = ParseNumber<pid_t>(text.substr(0, text.find('\n')));
  ASSERT_TRUE(child);
  EXPECT_EQ(::kill(*child, SIGKILL), 0);
}

TEST_F(ModelProcessTest, ItGetsSigtermWhenTheThreadEndsThatStartedIt) {
  std::unique_ptr<ModelProcess> process;
  std::thread starter([&] {
    process = Start("trap 'echo term; exit 0' TERM; echo up; while :; do sleep 0.02; done");
    Await([&] { return process->Output() == "up\n"; });
  });
  starter.join();
  ASSERT_TRUE(process && AwaitEnd(*process));
  EXPECT_EQ(process->Output(), "up\nterm\n");
}

}  // namespace
}  // namespace moestro
