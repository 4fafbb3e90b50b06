// SPDX-License-Identifier: MIT
// A machine that gives no further thread or process is a sentence. The limit is one of a user's
// processes, which root has not, so a child of the test becomes another user.
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "house/house.h"
#include "house/model_process.h"
#include "tests/support/sanitized_testing.h"

namespace moestro {
namespace {

constexpr uid_t kNobodyElse = 54'321;  // a user without processes

// Becomes a user who may have so many processes and threads, this one counted.
bool BecomeLimited(rlim_t most) {
  const rlimit limit{.rlim_cur = most, .rlim_max = most};
  return ::setgroups(0, nullptr) == 0 && ::setresgid(kNobodyElse, kNobodyElse, kNobodyElse) == 0 &&
         ::setrlimit(RLIMIT_NPROC, &limit) == 0 &&
         ::setresuid(kNobodyElse, kNobodyElse, kNobodyElse) == 0;
}

// Why no child can be limited here; empty: one can.
std::string NoLimitHere() {
  if (kIsSanitized) return "a sanitizer has threads of its own";
  if (::geteuid() != 0) return "only root may become another user";
  const pid_t child = ::fork();
  if (child == 0) ::_exit(BecomeLimited(1) && ::fork() < 0 ? 0 : 1);
  int status = 0;
  const bool is_limited = child > 0 && ::waitpid(child, &status, 0) == child && WIFEXITED(status) &&
                          WEXITSTATUS(status) == 0;
  return is_limited ? "" : "the limit of processes does not hold for another user here";
}

// In a child, under the limit: exits with 0 after the error's message, with 1 if there is none.
[[noreturn]] void ExitWith(rlim_t most, const std::function<Status()>& work) {
  if (!BecomeLimited(most)) ::_exit(2);
  const Status status = work();
  if (status || status.error().code != Errc::kIo) ::_exit(1);
  std::fputs(status.error().message.c_str(), stderr);
  std::fflush(stderr);
  ::_exit(0);
}

Status StartProcess() {
  const auto process = ModelProcess::Start(std::vector<std::string>{"x"}, "coder", "/bin/false");
  if (!process) return std::unexpected(process.error());
  return {};
}

Status OpenHouse() {
  const auto house =
      House::Open({{.name = "coder", .path = "coder.gguf"}}, uint64_t{1} << 30U, 1.0);
  if (!house) return std::unexpected(house.error());
  return {};
}

class ThreadLimitTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = NoLimitHere(); !why.empty()) GTEST_SKIP() << why;
  }
};

using ::testing::ExitedWithCode;

TEST_F(ThreadLimitTest, AProcessThatCannotBeStarted) {
  EXPECT_EXIT(ExitWith(1, StartProcess), ExitedWithCode(0), "cannot start a process");
}

// The process has started by then, and is ended.
TEST_F(ThreadLimitTest, AProcessWhoseOutputNobodyCouldRead) {
  EXPECT_EXIT(ExitWith(2, StartProcess), ExitedWithCode(0), "cannot start a thread");
}

TEST_F(ThreadLimitTest, AHouseWithoutItsThreads) {
  EXPECT_EXIT(ExitWith(1, OpenHouse), ExitedWithCode(0), "cannot start a thread");
}

// The thread that there was ends with the house.
TEST_F(ThreadLimitTest, AHouseWithOneOfItsThreads) {
  EXPECT_EXIT(ExitWith(2, OpenHouse), ExitedWithCode(0), "cannot start a thread");
}

TEST_F(ThreadLimitTest, EnoughIsEnough) {
  EXPECT_EXIT(
      {
        if (!BecomeLimited(8)) ::_exit(2);
        ::_exit(StartProcess() ? 0 : 1);
      },
      ExitedWithCode(0), "");
}

}  // namespace
}  // namespace moestro
